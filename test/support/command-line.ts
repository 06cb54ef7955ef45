// Runs the command line inside the test's process. A separate process would take a second to start.
import { Console } from 'node:console';
import { Readable, Writable } from 'node:stream';
import { environmentWith } from './environment-variables.js';
import { runCommandLine } from '../../src/cli/program.js';

export interface Answer {
  code: number;
  output: string;
  errors: string;
}

export interface CommandOptions {
  /** Changes of the test's environment variables; undefined removes a variable. */
  env?: Readonly<Record<string, string | undefined>>;
  cwd?: string;
  /** Text for standard input. */
  input?: string;
}

let last: Promise<unknown> = Promise.resolve();

/**
 * Exit code and output as from `bin/longhaul`. Runs only one command at a time, because output, environment and working directory belong to
 * the whole process.
 */
export function longhaul(args: readonly string[], options: CommandOptions = {}): Promise<Answer> {
  const answer = last.then(() => answerOf(args, options));
  last = answer.catch(() => undefined);
  return answer;
}

async function answerOf(args: readonly string[], { env, cwd, input }: CommandOptions): Promise<Answer> {
  const [output, errors] = [new Captured(), new Captured()];
  const restore = [
    replaced(process.stdout, 'write', output.write.bind(output)),
    replaced(process.stderr, 'write', errors.write.bind(errors)),
    replaced(globalThis, 'console', new Console(output, errors)),
    replaced(process, 'stdin', Readable.from(input === undefined ? [] : [input])),
    environmentWith(env ?? {}),
    folderOf(cwd),
  ];
  const exitCode = process.exitCode;
  process.exitCode = undefined;
  let code: number;
  try {
    code = await runCommandLine(args);
  } finally {
    process.exitCode = exitCode;
    for (const undo of restore.reverse()) undo();
  }
  return { code, output: output.text, errors: errors.text };
}

class Captured extends Writable {
  text = '';

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

function replaced<T extends object>(owner: T, name: keyof T, value: unknown): () => void {
  const before = Object.getOwnPropertyDescriptor(owner, name);
  Object.defineProperty(owner, name, { value, configurable: true, writable: true });
  return () => {
    if (before) Object.defineProperty(owner, name, before);
    else Reflect.deleteProperty(owner, name);
  };
}

function folderOf(cwd: string | undefined): () => void {
  if (cwd === undefined) return () => undefined;
  const before = process.cwd();
  process.chdir(cwd);
  return () => process.chdir(before);
}
