// The units of infra/systemd: systemd accepts them, and they start existing programs.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { filesIn, knownVariables, read, readUnit, readVariables, sourceOf } from './stack-files.js';

const units = filesIn('infra/systemd').filter((file) => file.endsWith('.service'));
const analyze = spawnSync('systemd-analyze', ['--version'], { encoding: 'utf8' });

test('there is a unit for each process', () => {
  expect(units.map((file) => basename(file)).sort()).toEqual([
    'longhaul-environments.service',
    'longhaul-follower.service',
    'longhaul-node@.service',
    'longhaul-orchestrator.service',
  ]);
});

describe.each(units)('%s', (file) => {
  const settings = readUnit(file);
  const valuesOf = (name: string): string[] =>
    settings.filter((one) => one.name === name).map(({ value }) => value);

  test('is accepted by systemd', ({ skip }) => {
    if (analyze.status !== 0) return skip('there is no systemd-analyze on this machine');
    const folder = mkdtempSync(join(tmpdir(), 'longhaul-units-'));
    try {
      // The test machine has Node in another place, and a template unit needs an instance name.
      const copy = join(folder, basename(file).replace('@.', '@gpu-01.'));
      writeFileSync(copy, read(file).replaceAll('/usr/bin/node', process.execPath));
      const { status, stderr, stdout } = spawnSync('systemd-analyze', ['verify', '--man=no', copy], {
        encoding: 'utf8',
      });
      expect(`${stdout}${stderr}`.split('\n').filter((line) => line.includes('longhaul'))).toEqual([]);
      expect(status).toBe(0);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('starts an existing process', () => {
    const [command = ''] = valuesOf('ExecStart');
    const script = /dist\/\S+\.js/.exec(command)?.[0] ?? '';
    expect(sourceOf(script)).toBeDefined();
  });

  test('sets only variables that some process reads', () => {
    const names = valuesOf('Environment').map((line) => line.split('=')[0] ?? '');
    const known = new Set([...knownVariables(), 'XDG_CACHE_HOME', 'CUDA_CACHE_PATH']);
    for (const name of names) expect(known).toContain(name);
  });

  test('is always restarted, gets time to leave, and has no more rights than it needs', () => {
    expect(valuesOf('Restart')).toEqual(['always']);
    expect(valuesOf('StartLimitIntervalSec')).toEqual(['0']);
    expect(valuesOf('User')).toEqual(['longhaul']);
    const hardening = { NoNewPrivileges: 'yes', ProtectSystem: 'strict', PrivateTmp: 'yes', UMask: '0077' };
    for (const [name, value] of Object.entries(hardening)) expect(valuesOf(name), name).toEqual([value]);
    expect(valuesOf('CapabilityBoundingSet')).toEqual(['']);
  });
});

test('a node may use its whole grace period', () => {
  const settings = readUnit('infra/systemd/longhaul-node@.service');
  const grace = settings.find(({ value }) => value.startsWith('LONGHAUL_GRACE='))?.value.split('=')[1];
  const limit = settings.find(({ name }) => name === 'TimeoutStopSec')?.value;
  expect(Number(limit)).toBeGreaterThanOrEqual(Number(grace) + 10);
});

test('the example file of shared variables has only variables that workers read, and no secret', () => {
  const known = new Set([
    ...knownVariables(),
    'TEMPORAL_ADDRESS',
    'TEMPORAL_NAMESPACE',
    'TEMPORAL_CONFIG_FILE',
    'TEMPORAL_PROFILE',
    'CUDA_VISIBLE_DEVICES',
  ]);
  for (const name of readVariables('infra/systemd/longhaul.env.example').keys()) {
    expect(known).toContain(name);
    expect(name).not.toMatch(/TOKEN$|SECRET|KEY/);
  }
});
