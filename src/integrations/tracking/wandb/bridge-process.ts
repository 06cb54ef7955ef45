// The child process that uses W&B's Python client: it takes one request at a time, each with a deadline, and answers with one line.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { withoutSecrets } from '../../../base/secrets.js';
import { SinkRefused } from '../metric-point.js';

/** In the same folder as this file, both in `src/` and in `dist/` (`tools/copy-assets.mjs`). */
const program = fileURLToPath(new URL('wandb_bridge.py', import.meta.url));
/** Environment variable of the bridge and of its child processes: by it, a later bridge finds leftover processes and ends them. */
const folderMark = 'LONGHAUL_WANDB_FOLDER';
const stderrChars = 2_000;
/** How many characters of a failure's detail are reported. */
const detailChars = 500;
/** How long a bridge that ends may still upload. */
const longestFarewellMs = 10_000;
/** After this much more time, a bridge that has not ended is killed. */
const graceMs = 2_000;

/** The only environment variables that the client gets: it needs no other secrets of this process. */
const passedOn =
  /^(PATH|HOME|USER|LANG|LC_.*|TMPDIR|TZ|XDG_.*|WANDB_.*|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE)$/;

export interface BridgeOptions {
  /** Python interpreter that has the package `wandb`. */
  python: string;
  /** Reads the API key from its source; it must not appear in a message. If undefined, the client looks for a key itself. */
  apiKey: () => string | undefined;
  /** Folder of this run alone. W&B's client keeps its files here; offline, they are the only copy. */
  folder: string;
  farewellMs?: number;
}

interface BridgeAnswer {
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
            ? new SinkRefused(`${python} was not found: name a Python that has the package wandb`)
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
    // A write to a dead bridge fails here, not at the caller; the caller learns of it from the handler of `close`.
    this.child.stdin.on('error', () => undefined);
    createInterface({ input: this.child.stdout }).on('line', (line) => this.heard(line));
  }

  get pid(): number | undefined {
    return this.child.pid;
  }

  /** Sends a request. When `signal` aborts, the bridge is killed: it is useless if it does not answer in time. */
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

  /** Resolves when the process has ended; kills it if it does not end in time. */
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

  /** Works on the whole text, because a key may be split between two pieces. */
  private discreet(text: string): string {
    return withoutSecrets(text, this.keys);
  }

  private end(error: Error): void {
    this.ended ??= error;
    this.waiting?.reject(this.ended);
    this.waiting = null;
  }
}
