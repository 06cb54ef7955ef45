// The bridge to W&B's Python client as a process: one request at a time, each with a deadline, an answer a line.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { withoutSecrets } from '../../../base/secrets.js';
import { SinkRefused } from '../metric-point.js';

/** Beside this file, in `src/` and in `dist/` alike (`tools/copy-assets.mjs`). */
const program = fileURLToPath(new URL('wandb_bridge.py', import.meta.url));
/** In the environment of the bridge and of all that it starts: a later bridge ends their leftovers. */
const folderMark = 'LONGHAUL_WANDB_FOLDER';
const stderrChars = 2_000;
/** Characters of a failure's detail that are reported. */
const detailChars = 500;
/** Time for a bridge at its end to upload the rest. */
const longestFarewellMs = 10_000;
/** After this further time a bridge that has not ended is killed. */
const graceMs = 2_000;

/** All that the client may need of this process's environment: other secrets are none of its business. */
const passedOn =
  /^(PATH|HOME|USER|LANG|LC_.*|TMPDIR|TZ|XDG_.*|WANDB_.*|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE)$/;

export interface BridgeOptions {
  /** Interpreter that has the package `wandb`. */
  python: string;
  /** Reads the key from its source; undefined: the client looks in its own places. Never in a message. */
  apiKey: () => string | undefined;
  /** Folder of this run alone. W&B's client keeps its files here; offline they are the only copy. */
  folder: string;
  farewellMs?: number;
}

export interface BridgeAnswer {
  ids?: string[];
  next: number;
}

type Answer =
  ({ ok: true; n: number } & BridgeAnswer) | { ok: false; n: number; refused: boolean; error: string };

interface Waiting {
  n: number;
  resolve: (answer: BridgeAnswer) => void;
  reject: (error: Error) => void;
}

export class BridgeProcess {
  private readonly child: ChildProcessWithoutNullStreams;
  private waiting: Waiting | null = null;
  private requests = 0;
  private stderr = '';
  private ended: Error | null = null;
  private readonly exit: Promise<void>;
  private readonly farewellMs: number;
  private readonly keys: readonly (string | undefined)[];

  constructor({ python, apiKey, folder, farewellMs = longestFarewellMs }: BridgeOptions) {
    const key = apiKey();
    this.farewellMs = farewellMs;
    this.keys = [key, process.env.WANDB_API_KEY];
    const env: NodeJS.ProcessEnv = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => passedOn.test(name)),
    );
    if (key !== undefined) env.WANDB_API_KEY = key;
    env[folderMark] = resolve(folder);
    this.child = spawn(python, ['-u', program, String(farewellMs / 1000)], { env });
    this.exit = new Promise((ended) => {
      this.child.once('error', (error: NodeJS.ErrnoException) => {
        const missing =
          error.code === 'ENOENT'
            ? new SinkRefused(`there is no ${python}: name a Python that has the package wandb`)
            : error;
        this.end(missing);
        ended();
      });
      this.child.once('close', (code, signal) => {
        const line = this.discreet(this.stderr).trim().split('\n').at(-1) ?? '';
        const detail = line && `: ${line.slice(-detailChars)}`;
        this.end(new Error(`the W&B bridge ended (${signal ?? `exit code ${code}`})${detail}`));
        ended();
      });
    });
    this.child.stderr.on('data', (piece: Buffer) => {
      this.stderr = (this.stderr + piece.toString()).slice(-stderrChars);
    });
    // A write to a dead bridge fails here and not at its caller, which `close` notifies.
    this.child.stdin.on('error', () => undefined);
    createInterface({ input: this.child.stdout }).on('line', (line) => this.heard(line));
  }

  get pid(): number | undefined {
    return this.child.pid;
  }

  /** A bridge that does not answer in time is useless: it is killed with `signal`. */
  async ask(request: object, signal: AbortSignal): Promise<BridgeAnswer> {
    signal.throwIfAborted();
    if (this.ended) throw this.ended;
    const n = ++this.requests;
    const kill = (): void => this.kill();
    signal.addEventListener('abort', kill, { once: true });
    try {
      return await new Promise<BridgeAnswer>((resolve, reject) => {
        this.waiting = { n, resolve, reject };
        this.child.stdin.write(`${JSON.stringify({ ...request, n })}\n`);
      });
    } finally {
      signal.removeEventListener('abort', kill);
    }
  }

  kill(): void {
    this.child.kill('SIGKILL');
  }

  /** Resolves when it is gone: it is killed if it does not end in time. */
  async stop(): Promise<void> {
    this.child.stdin.end();
    const timer = setTimeout(() => this.kill(), this.farewellMs + graceMs);
    await this.exit;
    clearTimeout(timer);
  }

  private heard(line: string): void {
    const waiting = this.waiting;
    let answer: Answer;
    try {
      answer = JSON.parse(line) as Answer;
    } catch {
      return;
    }
    if (!waiting || answer.n !== waiting.n) return;
    this.waiting = null;
    if (answer.ok) waiting.resolve(answer);
    else if (answer.refused) waiting.reject(new SinkRefused(`W&B: ${this.discreet(answer.error)}`));
    else waiting.reject(new Error(`W&B: ${this.discreet(answer.error)}`));
  }

  /** Applied to the whole text, because a key may arrive in pieces. */
  private discreet(text: string): string {
    return withoutSecrets(text, this.keys);
  }

  private end(error: Error): void {
    this.ended ??= error;
    this.waiting?.reject(this.ended);
    this.waiting = null;
  }
}
