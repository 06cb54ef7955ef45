// The settings of a worker process: flags win over variables, and a wrong setting gives an error of one line.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { readWorkerConfig } from '../../../src/workers/process/config.js';

const needed = ['--store', 'dir:/x', '--folder', '/x', '--temporal-address', 'h:1'];
const read = (flags: string[], env: NodeJS.ProcessEnv = {}) => readWorkerConfig([...needed, ...flags], env);

afterEach(() => {
  vi.unstubAllEnvs();
});

describe('a node worker', () => {
  it('has no default Temporal server: a server on this machine might be another user’s', () => {
    const profile = join(mkdtempSync(join(tmpdir(), 'longhaul-config-')), 'temporal.toml');
    writeFileSync(profile, '[profile.default]\n');
    vi.stubEnv('TEMPORAL_CONFIG_FILE', profile);
    vi.stubEnv('TEMPORAL_ADDRESS', undefined);
    const unnamed = ['--store', 'dir:/x', '--folder', '/x'];
    expect(() => readWorkerConfig(unnamed)).toThrow(/^no Temporal server is named: give --temporal-address/);
    vi.stubEnv('TEMPORAL_ADDRESS', 'h:1');
    expect(readWorkerConfig(unnamed).temporal.address).toBe('h:1');
  });

  it('by default holds one run at a time, and leaves within 25 s', () => {
    expect(read([])).toMatchObject({ places: 1, graceMs: 25_000 });
  });

  it('takes settings from flags and variables, and flags win', () => {
    const env = { LONGHAUL_PLACES: '3', LONGHAUL_GRACE: '110' };
    expect(read([], env)).toMatchObject({ places: 3, graceMs: 110_000 });
    expect(read(['--places', '20', '--grace', '8'], env)).toMatchObject({ places: 20, graceMs: 8_000 });
  });

  it('has one place if it is a node of a Tinker server', () => {
    const tinker = ['--tinker', 'http://127.0.0.1:8000'];
    expect(read(tinker)).toMatchObject({ places: 1, tinker: { service: 'tinker' } });
    expect(() => read([...tinker, '--places', '2'])).toThrow(/a node of a Tinker server has one place/);
  });

  it.each([
    ['--places', '0', /--places or LONGHAUL_PLACES takes a whole number from 1 to 100, not "0"/],
    ['--places', 'many', /from 1 to 100, not "many"/],
    ['--grace', '0', /--grace or LONGHAUL_GRACE takes a whole number from 1 to 3600, not "0"/],
    ['--grace', '25s', /from 1 to 3600, not "25s"/],
    ['--grace', '1.5', /from 1 to 3600, not "1.5"/],
  ])('refuses %s %s, and the error names the range', (flag, value, message) => {
    expect(() => read([flag, value])).toThrow(message);
  });
});

describe('a worker’s metrics', () => {
  it('are by default not served; flags win over variables', () => {
    expect(read([]).metricsAddress).toBeNull();
    expect(read([], { LONGHAUL_METRICS_ADDRESS: '' }).metricsAddress).toBeNull();
    const env = { LONGHAUL_METRICS_ADDRESS: '0.0.0.0:9464' };
    expect(read([], env).metricsAddress).toBe('0.0.0.0:9464');
    expect(read(['--metrics-address', '[::1]:9000'], env).metricsAddress).toBe('[::1]:9000');
    expect(read(['--metrics-address', '9000'], env).metricsAddress).toBe('127.0.0.1:9000');
    expect(read(['--metrics-address', 'localhost:9000'], env).metricsAddress).toBe('127.0.0.1:9000');
  });

  it.each(['node-1:9464', '1.2.3:80', '127.0.0.1:0', '127.0.0.1:70000', 'http://[::1]:80'])(
    'may not be served at an address such as %s',
    (address) => {
      expect(() => read(['--metrics-address', address])).toThrow(
        /^--metrics-address or LONGHAUL_METRICS_ADDRESS .*127\.0\.0\.1:9464/,
      );
    },
  );
});

describe('an orchestrator worker', () => {
  it('by default belongs to no deployment', () => {
    expect(read([]).deployment).toBeNull();
  });

  it('takes its deployment and build from flags and variables, and flags win', () => {
    const env = { LONGHAUL_DEPLOYMENT: 'longhaul', LONGHAUL_BUILD_ID: '1.2.3' };
    expect(read([], env).deployment).toEqual({ name: 'longhaul', buildId: '1.2.3' });
    expect(read(['--build-id', '1.2.4'], env).deployment).toEqual({ name: 'longhaul', buildId: '1.2.4' });
  });

  it.each([
    [['--deployment', 'longhaul'], /--build-id or LONGHAUL_BUILD_ID is missing/],
    [['--build-id', '1.2.3'], /--deployment or LONGHAUL_DEPLOYMENT is missing/],
    [['--deployment', 'long.haul', '--build-id', '1'], /"long.haul" is not valid/],
    [['--deployment', 'longhaul', '--build-id', '1 2'], /"1 2" is not valid/],
  ])('refuses %j', (flags, message) => {
    expect(() => read(flags)).toThrow(message);
  });
});
