// Faults within a step: wrong output of the model, a full disk, an engine that cannot be used.
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createNodeActivities } from '../../../src/activities/node-activities.js';
import { nativePolicyHolder } from '../../../src/policy/native-state-keeper.js';
import { createNativeEngine } from '../../../src/engine/native/native-engine.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { loadChatTemplate } from '../../../src/episode/chat-template.js';
import { playEpisode } from '../../../src/episode/episode-loop.js';
import { loadTokenizer } from '../../../src/episode/tokenizer.js';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { lastCommittedStep, readState } from '../../../src/store/runs/run-records.js';
import { startStack } from '../../../src/stack/stack.js';
import { run, startEnvironments, startHarness } from '../../activities/fixture.js';
import { counterTask, startCounterServer, token } from '../../environments/stand-in.js';
import { hermes, sampling } from '../../episode/fixtures.js';
import { scriptedPolicy } from '../../episode/scripted-policy.js';

const cleanup: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const clean of cleanup.splice(0).reverse()) await clean();
});

describe('an episode continues and is graded', () => {
  it('after tool calls that are not JSON, that name an unknown tool, or that return 10 MB of output', async () => {
    const server = await startCounterServer();
    cleanup.push(() => server.close());
    const backend = createOpenEnvBackend({ url: server.url, gradingToken: token, maxSessions: 2 });
    cleanup.push(() => backend.close());
    const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
    const template = loadChatTemplate(
      readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
      tokenizer,
    );
    const call = (name: string): string => `<tool_call>{"name":"${name}","arguments":{}}</tool_call>`;
    const engine = scriptedPolicy(tokenizer, [
      '<tool_call>{"name": increment</tool_call>',
      call('incremnt'),
      call('shout'),
      call('increment'),
      '<done>',
    ]);
    const { outcome, metrics, tokens } = await playEpisode(
      { engine, backend, tokenizer, template, ...hermes },
      {
        task: counterTask(1),
        sampling: { ...sampling, max_output_chars: 200 },
        key: { seed: 1, domain: 'train', step: 1, slot: 0, sample: 0 },
        state: 'a'.repeat(64),
        policyStep: 0,
        episodeSeed: 7,
        episodeId: 'faults',
        maxWaitMs: 5_000,
      },
      new AbortController().signal,
    );
    const text = tokenizer.decode(tokens);
    expect(text).toContain('Error: the tool call is not valid JSON.');
    expect(text).toContain('unknown tool incremnt');
    expect(text).toContain('xxxxxxxx');
    expect(tokens.length).toBeLessThanOrEqual(sampling.max_sequence_length);
    expect(metrics).toEqual({ turns: 5, tool_calls: 4, tool_errors: 2 });
    expect(outcome).toEqual({ status: 'graded', value: 1 });
  });
});

/** Program that greets like the engine (docs/engine-protocol.md), with a version that never existed. */
const olderEngine = `#!/usr/bin/env node
import { Socket } from 'node:net';
const socket = new Socket({ fd: 3 });
socket.once('data', (hello) => {
  const header = Buffer.from(JSON.stringify({ ok: true, version: '0.0.1', incarnation: 'x', state: null }));
  const head = Buffer.alloc(12);
  head.writeUInt32LE(8 + header.length, 0);
  hello.copy(head, 4, 4, 8);
  head.writeUInt32LE(header.length, 8);
  socket.write(Buffer.concat([head, header]));
});
`;

describe('an engine that cannot be used', () => {
  let environments: EnvironmentServer;
  beforeAll(async () => {
    environments = await startEnvironments();
  });
  afterAll(() => environments.close());

  it('blocks the run at once, says how to fix it, and writes nothing', async () => {
    const harness = await startHarness(environments);
    cleanup.push(() => harness.close());
    await harness.open();
    const older = join(harness.folder, 'older-engine.mjs');
    writeFileSync(older, olderEngine);
    chmodSync(older, 0o755);
    for (const binary of [older, '/nowhere/longhaul-engine']) {
      const engine = createNativeEngine({ binary, threads: 1 });
      cleanup.push(() => engine.close());
      const holder = nativePolicyHolder({
        store: harness.store,
        engine,
        folder: harness.folder,
        log: () => undefined,
      });
      const { commitBase } = createNodeActivities({ ...harness.node, holder });
      await expect(harness.attempt('base', () => commitBase({ run, owner: 1 }))).rejects.toMatchObject({
        type: 'EngineUnfit',
        nonRetryable: true,
        message: expect.stringContaining('npm run build:native') as string,
      });
    }
    expect(await lastCommittedStep(harness.store, run)).toBe(-1);
  });
});

/** Mounts a file system of `size` bytes; null if this user may not mount one. */
function smallDisk(size: string): string | null {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-disk-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'longhaul-test', folder], {
      stdio: 'ignore',
    });
  } catch {
    rmSync(folder, { recursive: true });
    return null;
  }
  cleanup.push(() => {
    execFileSync('umount', [folder]);
    rmSync(folder, { recursive: true });
  });
  return folder;
}

describe('a full disk', () => {
  const noMount = 'this user may not mount a small file system';

  it('stops a step with one clear error and loses nothing: with free space again the run ends with the same state', async ({
    skip,
  }) => {
    const disk = smallDisk('2m');
    if (!disk) return skip(noMount);
    const environments = await startEnvironments();
    cleanup.push(() => environments.close());
    const [undisturbed, harness] = [await startHarness(environments), await startHarness(environments, disk)];
    cleanup.push(
      () => undisturbed.close(),
      () => harness.close(),
    );
    await undisturbed.advance(4);
    await harness.advance(1);
    const ballast = join(disk, 'ballast');
    fill(ballast);
    await expect(harness.advance(4)).rejects.toMatchObject({
      name: 'StoreFull',
      message: expect.stringMatching(/no space for .*free some space there; nothing was lost/) as string,
    });
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
    rmSync(ballast);
    await harness.advance(4);
    expect(await readState(harness.store, run, 4)).toBe(await readState(undisturbed.store, run, 4));
    expect((await auditRun(harness.store, run)).violations).toEqual([]);
  });

  it('keeps the embedded stack from starting, and the error says how much space is needed', async ({
    skip,
  }) => {
    const disk = smallDisk('16m');
    if (!disk) return skip(noMount);
    const folder = join(disk, 'stack');
    mkdirSync(folder);
    const starting = startStack({
      folder,
      engine: process.execPath,
      log: () => undefined,
      gaveUp: () => undefined,
    });
    await expect(starting).rejects.toThrow(
      /only 1\d MiB are free on the disk of .*a run needs at least 512 MiB; make room/,
    );
  });
});

/** Writes until no space is left. */
function fill(path: string): void {
  const piece = Buffer.alloc(4096);
  try {
    for (;;) writeFileSync(path, piece, { flag: 'a' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  }
}
