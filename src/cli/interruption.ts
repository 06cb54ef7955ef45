// Ctrl-C ends a command that follows a run, and not the run, which its workers drive: this says so, because the two are easily confused.
import { inFolder } from './output.js';
import type { TemporalFlags } from './temporal-access.js';

/** The shell's exit code for a process that SIGINT has ended. */
const interrupted = 130;

/** Until `follow` is done. The run's workflow is started by then, or is about to be. */
export async function sayingThatItGoesOn<T>(
  run: string,
  flags: TemporalFlags,
  follow: () => Promise<T>,
): Promise<T> {
  const leave = (): void => {
    const folder = inFolder(flags);
    process.stderr.write(
      `\nno longer followed; ${run} goes on. Look at it with: longhaul status ${run}${folder}; ` +
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
