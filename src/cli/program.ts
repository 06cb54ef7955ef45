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

const stops =
  'a stack is stopped by Ctrl-C where `longhaul up` runs, or by `kill N`; the file stack.json of its folder (.longhaul) has N as its pid';
const starts = '`longhaul up` starts a stack, and `longhaul train SPEC` a run';
const lists = '`longhaul runs` lists the runs';

/** Verbs of other tools, and what to type instead. */
const otherVerbs: Readonly<Record<string, string>> = {
  ...{
    down: stops,
    shutdown: stops,
    start: starts,
    run: starts,
    serve: starts,
    ls: lists,
    list: lists,
    ps: lists,
  },
  logs: 'the folder logs of a stack’s folder (.longhaul/logs) has a file for each process',
  kill: '`longhaul cancel RUN` ends a run, and `longhaul stop RUN` ends it after its step',
  continue: '`longhaul resume RUN` continues a paused run, and `longhaul train --run RUN` one that ended',
  eval: '`longhaul sweeps run FILE` evaluates checkpoints',
  ui: '`longhaul up` prints the address of the Temporal UI',
};

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
    const instead = one === undefined ? otherVerbs[verb] : undefined;
    if (instead !== undefined) {
      console.error(`error: unknown command '${verb}': ${instead}`);
      return usageExitCode;
    }
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
