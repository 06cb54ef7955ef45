// tools/gpu-runs.mjs, with the emulated device in place of a GPU.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { findEmulatedEngine, findTemporal } from '../support/find-tools.js';
import { ownFolder } from '../support/scratch-folder.js';
import { smallRun } from '../support/small-run.js';

const script = fileURLToPath(new URL('../../tools/gpu-runs.mjs', import.meta.url));
const { haveOneState } = (await import(script)) as {
  haveOneState: (states: { cpu?: string; device?: string; moved?: string }) => boolean;
};

/** A folder that all stacks of a user share. */
const claimedPorts = `longhaul-ports-${process.getuid?.()}`;

/** What the script answers for the smallest run, and what it leaves in its folder for temporary files. */
async function gpuRuns(args: readonly string[]) {
  const folder = ownFolder();
  const temporary = join(folder, 'temporary');
  mkdirSync(temporary);
  const spec = join(folder, 'spec.json');
  writeFileSync(spec, JSON.stringify((await smallRun(join(folder, 'data'))).named('small')));
  const child = spawn(process.execPath, [script, '--device', 'emulated', '--spec', spec, ...args], {
    env: { ...process.env, TMPDIR: temporary, LONGHAUL_TEMPORAL: findTemporal() },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [output, errors, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  return { code, output, errors, left: readdirSync(temporary).filter((name) => name !== claimedPorts) };
}

describe('gpu-runs', () => {
  it('ends a run in one state on the CPU, on the device, and moved between them', async () => {
    const engine = findEmulatedEngine();
    const { code, output, errors, left } = await gpuRuns(['--engine', engine, '--within', '840']);
    expect({ code, left }, errors).toEqual({ code: 0, left: [] });
    const result = JSON.parse(output) as Record<'cpu' | 'device' | 'moved', string>;
    expect(result).toMatchObject({ steps: 4, moved_after: [2, 3] });
    expect(result.cpu).toMatch(/^[0-9a-f]{64}$/);
    expect(haveOneState(result)).toBe(true);
  });

  it('does not take the CPU for the device', async () => {
    const engine = join(ownFolder(), 'engine');
    writeFileSync(engine, `#!/bin/sh\nLONGHAUL_DEVICE=cpu exec '${findEmulatedEngine()}' "$@"\n`, {
      mode: 0o755,
    });
    const { code, output, errors, left } = await gpuRuns(['--engine', engine, '--within', '840']);
    expect({ code, output, left }, errors).toEqual({ code: 1, output: '', left: [] });
    expect(errors).toContain('LONGHAUL_DEVICE was emulated, but the node computed on the CPU');
  });

  // A process that it left would fail the whole test run.
  it('ends all that it has started when its time is over', async () => {
    const { code, errors, left } = await gpuRuns(['--engine', findEmulatedEngine(), '--within', '6']);
    expect({ code, left }, errors).toEqual({ code: 124, left: [] });
    expect(errors).toContain('not ended within 6 s');
  });

  it('says what a checkout lacks', () => {
    const checkout = ownFolder();
    cpSync(script, join(checkout, 'tools/gpu-runs.mjs'));
    const args = [join(checkout, 'tools/gpu-runs.mjs'), '--engine', 'none'];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 30_000 });
    expect({ status, stderr }).toEqual({ status: 3, stderr: expect.stringContaining('dist/cli/main.js') });
  });

  it('finds a run that ended in another state, or in none', () => {
    expect(haveOneState({ cpu: 'a', device: 'a', moved: 'a' })).toBe(true);
    expect(haveOneState({ cpu: 'a', device: 'b', moved: 'a' })).toBe(false);
    expect(haveOneState({ cpu: 'a', device: 'a', moved: 'b' })).toBe(false);
    expect(haveOneState({})).toBe(false);
  });
});
