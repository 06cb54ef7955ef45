// The command line: one file a command, each with `register(program)`. A command's modules load only when it is used, because Temporal's
// client alone takes a third of a second.
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';

interface CommandModule {
  register(program: Command): void;
}

/** The verbs and the file that registers them, in the order of the help text. */
export const modules: [verbs: string[], load: () => Promise<CommandModule>][] = [
  [['quickstart'], () => import('./train/quickstart-command.js')],
  [['up'], () => import('./stack/up-command.js')],
  [['train'], () => import('./train/train-command.js')],
  [['spec'], () => import('./train/spec-command.js')],
  [['runs'], () => import('./inspect/runs-command.js')],
  [['status'], () => import('./inspect/status-command.js')],
  [['nodes'], () => import('./inspect/nodes-command.js')],
  [['pause', 'resume', 'checkpoint', 'stop', 'set', 'cancel'], () => import('./control/control-commands.js')],
  [['fork', 'rewind', 'rebase'], () => import('./control/fork-command.js')],
  [['sweeps'], () => import('./sweeps/sweeps-command.js')],
  [['data'], () => import('./data/data-command.js')],
  [['report'], () => import('./inspect/report-command.js')],
  [['transcripts'], () => import('./inspect/transcripts-command.js')],
  [['show'], () => import('./inspect/show-command.js')],
  [['audit'], () => import('./inspect/audit-command.js')],
  [['gc'], () => import('./store/gc-command.js')],
  [['quarantine'], () => import('./store/quarantine-command.js')],
  [['env'], () => import('./stack/env-command.js')],
  [['engine'], () => import('./engine/engine-command.js')],
  [['export'], () => import('./store/export-command.js')],
  [['doctor'], () => import('./stack/doctor-command.js')],
];

const usageExitCode = 2;

/** Runs one command line (without node and script). Returns the exit code: 0, 1 if the command failed, 2 if it was not understood. */
export async function runCommandLine(args: readonly string[]): Promise<number> {
  const program = new Command('longhaul')
    .description('Durable, days-long GRPO training of tool-use agents.')
    .version(version());
  const [verb = ''] = args;
  const one = modules.find(([verbs]) => verbs.includes(verb));
  for (const [, load] of one === undefined ? modules : [one]) (await load()).register(program);
  for (const command of [program, ...descendants(program)]) {
    command
      .exitOverride()
      .showSuggestionAfterError()
      .showHelpAfterError(`see: ${fullName(command)} --help`);
  }
  try {
    if (args.length === 0) program.help({ error: true });
    // Drop the options of an unknown verb: otherwise `--help` would print the general help instead of an error.
    if (one === undefined && /^[^-]/.test(verb) && verb !== 'help') args = [verb];
    await program.parseAsync([...args], { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    if (error instanceof CommanderError)
      return error.code.startsWith('commander.') && error.exitCode !== 0 ? usageExitCode : error.exitCode;
    throw error;
  }
}

function descendants(command: Command): readonly Command[] {
  return command.commands.flatMap((child) => [child, ...descendants(child)]);
}

function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}

/** The package is the nearest folder above that has a package.json, whether this file runs from `src/` or from `dist/`. */
function version(): string {
  for (let folder = new URL('.', import.meta.url); ; folder = new URL('..', folder)) {
    try {
      return (JSON.parse(readFileSync(new URL('package.json', folder), 'utf8')) as { version: string })
        .version;
    } catch {
      if (folder.pathname === '/') return 'unknown';
    }
  }
}
