import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { EngineError } from '../../../src/engine/policy-engine.js';
import { NodeDevice } from '../../../src/workers/node/node-device.js';

const differs = new EngineError('DeviceDiffers', 'the log-prob of token 3 is 0 in place of 1');

/** A node with a folder of its own. `start`: what its process does at its start. */
function newNode() {
  const folder = join(mkdtempSync(join(tmpdir(), 'node-device-')), 'node');
  const said: string[] = [];
  const options = {
    folder,
    leave: () => void said.push('leaves'),
    log: (text: string) => void said.push(text),
  };
  return { folder, said, start: (named?: string) => new NodeDevice(options, named) };
}

it('asks for the GPU on which the node computed before, unless LONGHAUL_DEVICE names a device', () => {
  const { start } = newNode();
  const first = start();
  expect(first.wanted).toBeUndefined();
  first.found('cpu');
  expect(start().wanted).toBeUndefined();
  start().found('cuda');
  expect(start('').wanted).toBe('cuda');
  expect(start('cpu').wanted).toBeUndefined();
  start('cpu').found('cpu');
  expect(start().wanted).toBe('cuda');
});

it('leaves if a GPU computes wrong values, and stays out until the file that the error names is deleted', () => {
  const { said, start } = newNode();
  const device = start();
  device.found('cuda');
  device.failed(differs);
  expect(said).toEqual([expect.stringMatching(/leaves, .* token 3 is 0/), 'leaves']);
  const refusal = (named?: string): EngineError | null => {
    try {
      start(named);
    } catch (error) {
      return error as EngineError;
    }
    return null;
  };
  expect(refusal()).toMatchObject({
    code: 'DeviceUnavailable',
    message: expect.stringMatching(
      /out of service: \S+ the log-prob of token 3 is 0 in place of 1\. Check it/,
    ),
  });
  expect(refusal('cuda')).not.toBeNull();
  expect(refusal('cpu')).toBeNull();
  const file = /then delete (.*?)\. LONGHAUL/.exec(refusal()?.message ?? '')?.[1] ?? '';
  expect(existsSync(file)).toBe(true);
  rmSync(file);
  expect(refusal()).toBeNull();
});

it('leaves if its GPU is gone, and looks again at its next start', () => {
  const { folder, said, start } = newNode();
  const device = start();
  device.found('cuda');
  device.failed(new EngineError('DeviceUnavailable', 'the NVIDIA driver shows no GPU'));
  expect(said.at(-1)).toBe('leaves');
  expect(readdirSync(folder)).toEqual(['device']);
  expect(start().wanted).toBe('cuda');
});

it('leaves nothing behind if the device fails before the node has served', () => {
  const { folder, said, start } = newNode();
  start().failed(differs);
  expect(said).toEqual([]);
  expect(existsSync(folder)).toBe(false);
});

it('leaves even if the disk takes no note', () => {
  const { folder, said, start } = newNode();
  writeFileSync(folder, 'a file in place of the folder');
  const device = start();
  device.found('cuda');
  device.failed(differs);
  expect(said).toContain('leaves');
  expect(said.at(-1)).toMatch(/gpu-computed-wrong-values could not be written/);
});
