// One engine process, from start to end. Frames go over descriptor 3, logs over standard error.
//
// Invariant: however the process ends, every open call is rejected; no call waits for ever.
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Duplex } from 'node:stream';
import { awakeTimeout } from '../../base/awake-clock.js';
import { isObject } from '../../base/json.js';
import { isSecretName } from '../../base/secrets.js';
import { EngineError, EngineExited } from '../policy-engine.js';
import { encodeFrame, type Frame, type FrameArray, FrameDecoder, FrameError } from './frames.js';

interface EngineProcessOptions {
  binary: string;
  testFaults?: boolean;
  /** LONGHAUL_DEVICE and LONGHAUL_NUMERICS of the engine; default: this process's. */
  device?: string;
  numerics?: string;
  /** Every line that the engine logs. */
  log?: (line: string) => void;
  /** The process is killed if it does not answer `stats` within this time while a call is open. */
  livenessMs?: number;
  /** It is also killed if it answers `stats`, but its work makes no progress for this long. */
  stallMs?: number;
}

export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** The engine's `progress` object. */
  onProgress?: (progress: Record<string, unknown>) => void;
}

export interface Reply {
  header: Record<string, unknown>;
  arrays: Map<string, FrameArray>;
}

interface OpenCall {
  resolve: (reply: Reply) => void;
  reject: (error: Error) => void;
  onProgress: CallOptions['onProgress'];
}

/**
 * Environment variables that the engine may receive. Secrets are left out, so the engine cannot leak one. LONGHAUL_STACK is left out too:
 * the stack's supervisor ends an engine through its node.
 */
const passedOn =
  /^(PATH|HOME|LANG|LC_.*|TZ|TMPDIR|XDG_.*|NODE_.*|LD_.*|DYLD_.*|(A|L|T|UB)SAN_OPTIONS|CUDA_.*|NVIDIA_.*|LONGHAUL_(?!STACK$).*)$/;
const keptLogLines = 20;
/** How long to wait after the exit for data that is still in the socket. */
const drainMs = 500;

export class EngineProcess {
  private readonly child: ChildProcess;
  private readonly socket: Duplex;
  private readonly decoder = new FrameDecoder();
  private readonly open = new Map<number, OpenCall>();
  private readonly options: Required<Pick<EngineProcessOptions, 'livenessMs' | 'stallMs'>> & EngineProcessOptions;
  private readonly logTail: string[] = [];
  private readonly ended: Promise<void>;
  private watch: NodeJS.Timeout | null = null;
  private unsent: Buffer[] = [];
  private nextId = 1;
  private death: EngineError | null = null;
  private killReason: string | null = null;
  private heardAt = performance.now();

  constructor(options: EngineProcessOptions) {
    this.options = { livenessMs: 30_000, stallMs: 600_000, ...options };
    const faults = options.testFaults ? ['--test-faults'] : [];
    this.child = spawn(options.binary, ['--fd', '3', ...faults], {
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
      env: {
        ...Object.fromEntries(Object.entries(process.env).filter(([name]) => passedOn.test(name) && !isSecretName(name))),
        ...(options.device !== undefined && { LONGHAUL_DEVICE: options.device }),
        ...(options.numerics !== undefined && { LONGHAUL_NUMERICS: options.numerics }),
      },
    });
    this.socket = this.child.stdio[3] as Duplex;
    this.socket.on('data', (chunk: Buffer) => this.receive(chunk));
    // Ignored: a reset connection only follows the end of the process, which is reported.
    this.socket.on('error', () => {});
    createInterface({ input: this.child.stderr! }).on('line', (line) => {
      this.logTail.push(line);
      if (this.logTail.length > keptLogLines) this.logTail.shift();
      options.log?.(line);
    });
    this.ended = new Promise((resolve) => {
      const end = (error: EngineError) => {
        this.fail(error);
        resolve();
      };
      this.child.once('error', (error: NodeJS.ErrnoException) => end(startError(options.binary, error)));
      this.child.once('exit', (code, signal) => {
        // If the engine was killed for its silence, keep the time of its last answer.
        if (this.killReason === null) this.heardAt = performance.now();
        setTimeout(() => end(this.exitError(code, signal)), drainMs).unref();
      });
      this.child.once('close', (code, signal) => end(this.exitError(code, signal)));
    });
  }

  get pid(): number | undefined {
    return this.child.pid;
  }

  get alive(): boolean {
    return this.death === null && this.child.exitCode === null && this.child.signalCode === null;
  }

  /**
   * Calls one verb. Rejects with an `EngineError` that has the engine's code, or `EngineExited` as soon as the process has ended. If
   * `signal` aborts, the request is cancelled in the engine; the promise still settles with the engine's answer.
   */
  call(
    header: object,
    arrays: readonly FrameArray[] = [],
    { signal, onProgress }: CallOptions = {},
  ): Promise<Reply> {
    if (this.death) return Promise.reject(this.death);
    if (signal?.aborted) return Promise.reject(new EngineError('Cancelled', 'cancelled before it began'));
    const id = this.takeId();
    let bytes: Buffer;
    try {
      bytes = encodeFrame(id, header, arrays);
    } catch (error) {
      return Promise.reject(new EngineError('BadInput', (error as Error).message, { cause: error }));
    }
    return new Promise((resolve, reject) => {
      const cancel = () => void this.call({ verb: 'cancel', target: id }).catch(() => {});
      const settled = () => signal?.removeEventListener('abort', cancel);
      this.open.set(id, {
        onProgress,
        resolve: (reply) => {
          settled();
          resolve(reply);
        },
        reject: (error) => {
          settled();
          reject(error);
        },
      });
      signal?.addEventListener('abort', cancel, { once: true });
      this.send(bytes);
      this.watchLiveness();
    });
  }

  /** Joins all frames of one event-loop turn into one write: a rollout sends hundreds of small frames. */
  private send(frame: Buffer): void {
    if (this.unsent.push(frame) > 1) return;
    setImmediate(() => {
      this.socket.write(Buffer.concat(this.unsent));
      this.unsent = [];
    });
  }

  /** Asks the process to end; kills it after `graceMs`. */
  async close(graceMs = 5_000): Promise<void> {
    if (!this.alive) return this.ended;
    this.killReason ??= 'the engine was closed';
    const force = setTimeout(() => this.child.kill('SIGKILL'), graceMs);
    void this.call({ verb: 'shutdown' }).catch(() => {});
    await this.ended;
    clearTimeout(force);
  }

  /** Kills the process; open calls reject, and the error says `reason`. */
  kill(reason: string): void {
    this.killReason ??= reason;
    this.child.kill('SIGKILL');
  }

  private takeId(): number {
    const id = this.nextId;
    // Ids have 32 bits, 0 is unused. An id is reused after 2³² calls, long after its call was answered.
    this.nextId = id === 0xffff_ffff ? 1 : id + 1;
    return id;
  }

  private receive(chunk: Buffer): void {
    this.heardAt = performance.now();
    let frames: Frame[];
    try {
      frames = this.decoder.push(chunk);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      return this.kill(`its output cannot be read: ${error.message}`);
    }
    for (const { id, header, arrays } of frames) {
      const call = this.open.get(id);
      if (!call) continue;
      if (isObject(header['progress'])) {
        call.onProgress?.(header['progress']);
        continue;
      }
      this.open.delete(id);
      if (header['ok'] === true) call.resolve({ header, arrays });
      else call.reject(replyError(header));
    }
  }

  private watchLiveness(): void {
    if (this.watch) return;
    const { livenessMs, stallMs } = this.options;
    this.watch = setInterval(() => void probe(), livenessMs / 3);
    this.watch.unref();
    let probing = false;
    const probe = async () => {
      if (this.open.size === 0 && this.watch) {
        clearInterval(this.watch);
        this.watch = null;
        return;
      }
      if (probing) return;
      probing = true;
      const seconds = Math.round(livenessMs / 1000);
      const answered = awakeTimeout(() => this.kill(`it did not answer for ${seconds} s`), livenessMs);
      try {
        const { header } = await this.call({ verb: 'stats' });
        const stats = isObject(header['stats']) ? header['stats'] : {};
        if (Number(stats['busy_ms']) > stallMs)
          this.kill(`it reported no progress for ${Math.round(stallMs / 1000)} s`);
      } catch {
        // The process has ended and its open calls were rejected.
      } finally {
        answered();
        probing = false;
      }
    };
  }

  private exitError(code: number | null, signal: NodeJS.Signals | null): EngineError {
    const how = signal ? `was ended by ${signal}` : `exited with code ${code}`;
    const why = this.killReason ? `: ${this.killReason}` : '';
    const tail = this.logTail.length > 0 ? `\nIts last log lines:\n${this.logTail.join('\n')}` : '';
    const half = this.decoder.partial ? ' in the middle of a frame' : '';
    return new EngineExited(
      `The engine (process ${this.child.pid}) ${how}${half}${why}.${tail}`,
      this.child.pid ?? 0,
      performance.now() - this.heardAt,
    );
  }

  private fail(error: EngineError): void {
    if (this.death) return;
    this.death = error;
    if (this.watch) clearInterval(this.watch);
    this.socket.destroy();
    for (const call of this.open.values()) call.reject(error);
    this.open.clear();
  }
}

function startError(binary: string, error: NodeJS.ErrnoException): EngineError {
  const why = error.code === 'ENOENT' ? 'the file does not exist' : error.message;
  return new EngineError(
    'EngineMissing',
    `Cannot start the engine ${binary}: ${why}. Build it with: npm run build:native`,
    {
      cause: error,
    },
  );
}

const replyCodes = [
  'WrongState',
  'WrongBase',
  'WrongReference',
  'BadBatch',
  'BadInput',
  'BadFile',
  'Io',
  'Internal',
  'Cancelled',
  'OutOfMemory',
  'VersionMismatch',
  'DeviceDiffers',
  'DeviceUnavailable',
] as const;

function replyError(header: Record<string, unknown>): EngineError {
  const error = isObject(header['error']) ? header['error'] : {};
  const code = replyCodes.find((known) => known === error['code']) ?? 'Internal';
  return new EngineError(code, String(error['message'] ?? 'the engine gave no reason'));
}
