import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { encodeFrame, FrameDecoder } from '../../src/engine/native/frames.js';
import { findEngine } from '../support/find-tools.js';
import {
  generation,
  startEngine,
  temporaryPath,
  tinyModel,
  transcript,
  writeUpdate,
} from './engine-fixture.js';

const longModel = {
  ...tinyModel,
  architecture: { ...tinyModel.architecture, max_position_embeddings: 65_536 },
};

/** Path of an engine that only answers the greeting. `header`: members of its reply, as JavaScript. */
function greetingEngine(header: string): string {
  const path = temporaryPath('engine.mjs');
  writeFileSync(
    path,
    `#!/usr/bin/env node
import { Socket } from 'node:net';
const socket = new Socket({ fd: 3 });
socket.on('end', () => process.exit(0));
socket.once('data', (bytes) => {
  const header = Buffer.from(JSON.stringify({ ok: true, incarnation: 'x', state: null, ${header} }));
  const reply = Buffer.alloc(12 + header.length);
  reply.writeUInt32LE(8 + header.length, 0);
  bytes.copy(reply, 4, 4, 8);
  reply.writeUInt32LE(header.length, 8);
  header.copy(reply, 12);
  socket.write(reply);
});
`,
  );
  chmodSync(path, 0o755);
  return path;
}

describe('the engine process', () => {
  it('reports its version, numerics and incarnation', async () => {
    const engine = startEngine({ threads: 2 });
    const info = await engine.info();
    expect(info).toMatchObject({ numerics: { backend: 'cpu', version: 2 }, threads: 2 });
    expect(info.build).toMatch(/^\d+\.\d+\.\d+, g\+\+/);
    expect(info.incarnation).toMatch(/^[0-9a-f]{16}$/);
    expect((await startEngine().info()).incarnation).not.toBe(info.incarnation);
  });

  it('has a low priority on its machine, with all of its threads', async () => {
    const engine = startEngine({ threads: 2 });
    await engine.loadRandom(tinyModel);
    const tasks = `/proc/${engine.pid()}/task`;
    // Field 19 of proc_pid_stat(5), counted from the end of the process name, which may contain anything.
    const niceness = (task: string): number =>
      Number(readFileSync(`${tasks}/${task}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[16]);
    const all = readdirSync(tasks).map(niceness);
    expect(all.length).toBeGreaterThan(2);
    expect(new Set(all)).toEqual(new Set([10]));
  });

  it('rejects open calls at once when it is killed, and the next call starts a new process', async () => {
    const lines: string[] = [];
    const engine = startEngine({ log: (line) => lines.push(line) });
    const { state } = await engine.loadRandom(longModel);
    const { incarnation } = await engine.info();
    const endless = engine.generate(generation(state, transcript(30), { max_new_tokens: 60_000 }));
    endless.catch(() => {});
    while ((await engine.stats())['running'] === 0);
    const start = performance.now();
    process.kill(engine.pid()!, 'SIGKILL');
    await expect(endless).rejects.toMatchObject({
      code: 'EngineExited',
      message: expect.stringContaining('SIGKILL'),
    });
    expect(performance.now() - start).toBeLessThan(5_000);
    expect((await engine.info()).incarnation).not.toBe(incarnation);
    await expect(engine.generate(generation(state, [1]))).rejects.toMatchObject({ code: 'WrongState' });
    expect(await engine.loadRandom(longModel)).toMatchObject({ state });
  });

  it('that aborts after an update, before its reply, has kept nothing: the update is repeated', async () => {
    const engine = startEngine({ testFaults: true });
    const { state } = await engine.loadRandom(tinyModel);
    const request = writeUpdate(state, 1);
    await engine.injectFault('abort_after_update');
    await expect(engine.update(request)).rejects.toMatchObject({
      code: 'EngineExited',
      message: expect.stringContaining('SIGABRT'),
    });
    await engine.loadRandom(tinyModel);
    const other = startEngine();
    await other.loadRandom(tinyModel);
    expect((await engine.update(request)).state).toBe((await other.update(request)).state);
  });

  it('that dies in the middle of a frame is reported as such', async () => {
    const engine = startEngine({ testFaults: true });
    await engine.info();
    await expect(engine.injectFault('half_frame')).rejects.toMatchObject({
      code: 'EngineExited',
      message: expect.stringMatching(/code 70 in the middle of a frame[^]*half a frame was sent/),
    });
    expect(await engine.held()).toBeNull();
  });

  it('that stops answering is killed', async () => {
    const engine = startEngine({ testFaults: true, livenessMs: 300 });
    await engine.info();
    await expect(engine.injectFault('hang')).rejects.toMatchObject({
      code: 'EngineExited',
      message: expect.stringMatching(/SIGKILL: it did not answer/),
    });
  });

  it('whose work makes no progress is killed, even if it answers', async () => {
    const engine = startEngine({ testFaults: true, livenessMs: 600, stallMs: 600 });
    await engine.info();
    await expect(engine.injectFault('stall')).rejects.toMatchObject({
      code: 'EngineExited',
      message: expect.stringMatching(/SIGKILL: it reported no progress for 1 s/),
    });
  });

  it('may take as long as it needs while its work makes progress, even within a single shard', async () => {
    const deep = { ...tinyModel, architecture: { ...tinyModel.architecture, num_hidden_layers: 64 } };
    const shape = { miniBatches: 1, answers: new Array<number>(24).fill(240) };
    const timed = startEngine();
    const { state } = await timed.loadRandom(deep);
    const request = writeUpdate(state, 1, shape);
    const started = performance.now();
    const expected = await timed.update(request);
    const limitMs = (performance.now() - started) / 2;
    await timed.close();
    // A layer takes less than a hundredth of the update, and the limit is longer than the pauses of a busy machine.
    const watched = startEngine({ livenessMs: limitMs, stallMs: limitMs });
    await watched.loadRandom(deep);
    expect(await watched.update(request)).toEqual(expected);
  });

  it('has no fault verb unless it was started for a test', async () => {
    const engine = startEngine();
    await expect(engine.injectFault('abort')).rejects.toMatchObject({
      code: 'BadInput',
      message: 'unknown verb fault',
    });
  });

  it('that is missing or has another version gives one clear error with the fix', async () => {
    const fix = expect.stringContaining('npm run build:native');
    await expect(startEngine({ binary: '/nowhere/longhaul-engine' }).info()).rejects.toMatchObject({
      code: 'EngineMissing',
      message: fix,
    });
    const old = greetingEngine(`version: '0.0.1'`);
    await expect(startEngine({ binary: old }).info()).rejects.toMatchObject({
      code: 'VersionMismatch',
      message: fix,
    });
  });

  it('that began on a GPU starts again on a GPU, never on the CPU in its place', async () => {
    const binary = greetingEngine(
      `version: '0.1.0', device: { kind: 'cuda', name: process.env.LONGHAUL_DEVICE || 'any' }`,
    );
    const engine = startEngine({ binary });
    expect((await engine.info()).gpu?.name).toBe('any');
    process.kill(engine.pid() ?? 0, 'SIGKILL');
    await vi.waitUntil(() => engine.pid() === null, 120_000);
    expect((await engine.info()).gpu?.name).toBe('cuda');
  });

  it('that has no such device says so', async () => {
    onTestFinished(() => void vi.unstubAllEnvs());
    vi.stubEnv('LONGHAUL_DEVICE', 'abacus');
    const failed = vi.fn();
    const refusal = {
      code: 'DeviceUnavailable',
      message: 'LONGHAUL_DEVICE is abacus; it must be cpu or cuda',
    };
    await expect(
      startEngine({ device: { wanted: undefined, found: vi.fn(), failed } }).info(),
    ).rejects.toMatchObject(refusal);
    expect(failed).toHaveBeenCalledExactlyOnceWith(expect.objectContaining(refusal));
  });

  it('refuses calls after close', async () => {
    const engine = startEngine();
    await engine.info();
    await engine.close();
    expect(engine.pid()).toBeNull();
    await expect(engine.stats()).rejects.toMatchObject({ code: 'EngineExited' });
  });
});

describe('the stream', () => {
  function rawEngine() {
    const child = spawn(findEngine(), ['--fd', '3'], { stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
    const socket = child.stdio[3] as Duplex;
    socket.on('error', () => {});
    let errors = '';
    child.stderr!.on('data', (chunk: Buffer) => (errors += chunk.toString()));
    const exit = once(child, 'close').then(([code]) => ({ code: code as number, errors }));
    return { socket, exit };
  }

  it('ends the engine with code 0 when it ends', async () => {
    const { socket, exit } = rawEngine();
    socket.end();
    expect((await exit).code).toBe(0);
  });

  it.each([
    ['half a frame', encodeFrame(1, { verb: 'stats' }).subarray(0, 9), 'end of file within a frame'],
    ['a frame over the limit', Buffer.from([0xff, 0xff, 0xff, 0xff]), 'the limit is'],
    [
      'a header that is no JSON',
      Buffer.concat([encodeFrame(1, {}).subarray(0, 12), Buffer.from('{]')]),
      'broken header',
    ],
    [
      'an array that does not fit',
      encodeFrame(1, { verb: 'x', arrays: [{ name: 'a', dtype: 'I32', shape: [9] }] }),
      'does not fit',
    ],
    [
      'a shape that overflows',
      encodeFrame(1, { arrays: [{ name: 'a', dtype: 'U8', shape: [2 ** 28, 2 ** 28, 2 ** 28] }] }),
      'does not fit',
    ],
  ])('with %s ends the engine with code 3 and a log line', async (_, bytes, message) => {
    const { socket, exit } = rawEngine();
    socket.end(bytes);
    const { code, errors } = await exit;
    expect(code).toBe(3);
    expect(JSON.parse(errors.trim())).toMatchObject({
      level: 'error',
      message: expect.stringContaining(message),
    });
  });

  it('must begin with hello; every reply has its request’s id, the incarnation and the state', async () => {
    const { socket, exit } = rawEngine();
    const decoder = new FrameDecoder();
    const bytes = Buffer.concat([
      encodeFrame(7, { verb: 'held' }),
      encodeFrame(8, { verb: 'nonsense' }),
      encodeFrame(9, {}),
    ]);
    // Byte by byte, because frames must not depend on how the stream is cut.
    for (const byte of bytes) socket.write(Buffer.of(byte));
    const frames = [];
    for await (const chunk of socket) {
      frames.push(...decoder.push(chunk as Buffer));
      if (frames.length === 3) break;
    }
    expect(frames.map(({ id }) => id).sort()).toEqual([7, 8, 9]);
    for (const { header } of frames) {
      expect(header).toMatchObject({ ok: false, error: { code: 'BadInput' }, state: null });
      expect(header['incarnation']).toMatch(/^[0-9a-f]{16}$/);
    }
    socket.destroy();
    expect((await exit).code).toBe(0);
  });
});
