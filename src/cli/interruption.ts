// Ctrl-C ends a command that follows a run, but the workers continue the run. The two are easily confused, so a message says it.
import { inFolder } from './output.js';
import type { TemporalFlags } from './temporal-access.js';

/** The shell's exit code for a process that was ended by SIGINT. */
const interrupted = 130;

/** Prints the message on Ctrl-C while `follow` runs. By then the run's workflow has been started, or is about to be. */
export async function sayingThatItGoesOn<T>(
  run: string,
  flags: TemporalFlags,
  follow: () => Promise<T>,
): Promise<T> {
  const leave = (): void => {
    const folder = inFolder(flags);
    process.stderr.write(
      `\nstopped following; ${run} continues. Watch it with: longhaul status ${run}${folder}; ` +
        `end it with: longhaul cancel ${run}${folder}\n`,
    );
    process.exit(interrupted);
  };
  process.once('SIGINT', leave);
  try {
    return await follow();
  } finally {
    process.off('SIGINT', leave);
  }
}
