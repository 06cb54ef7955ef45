import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { EngineError } from '../../../src/engine/policy-engine.js';
import { noteFailingGpu, requireTrustedGpu } from '../../../src/workers/node/failing-gpu.js';

const gpu = { name: 'a GPU', memory_bytes: 1 };
const newFolder = (): string => join(mkdtempSync(join(tmpdir(), 'failing-gpu-')), 'node');

it('keeps a GPU that computed wrong values out of service until the file that the error names is deleted', () => {
  const folder = newFolder();
  requireTrustedGpu(folder, gpu);
  noteFailingGpu(folder, new EngineError('DeviceDiffers', 'the log-prob of token 3 is 0 in place of 1'));
  const refused = (): unknown => {
    try {
      requireTrustedGpu(folder, gpu);
    } catch (error) {
      return (error as Error).message;
    }
    return null;
  };
  expect(refused()).toMatch(/out of service: \S+ the log-prob of token 3 is 0 in place of 1\. Check it/);
  const file = /then delete (.*?);/.exec(String(refused()))?.[1] ?? '';
  expect(existsSync(file)).toBe(true);
  requireTrustedGpu(folder, null); // a CPU
  rmSync(file);
  expect(refused()).toBeNull();
});

it('lets a node start again whose GPU was only missing', () => {
  const folder = newFolder();
  noteFailingGpu(folder, new EngineError('DeviceUnavailable', 'the NVIDIA driver shows no GPU'));
  requireTrustedGpu(folder, gpu);
});
