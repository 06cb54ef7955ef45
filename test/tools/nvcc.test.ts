// Whether set-up builds the engine for GPUs.
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const { isCudaWanted } = (await import(new URL('../../tools/steps/nvcc.mjs', import.meta.url).href)) as {
  isCudaWanted: (said: string, driver: string) => boolean;
};

const driver = fileURLToPath(import.meta.url);
const noDriver = `${driver}.absent`;

test.each([
  { said: '', at: driver, wanted: true },
  { said: '', at: noDriver, wanted: false },
  { said: '1', at: noDriver, wanted: true },
  { said: '0', at: driver, wanted: false },
])('LONGHAUL_CUDA="$said" with a driver at $at: $wanted', ({ said, at, wanted }) => {
  expect(isCudaWanted(said, at)).toBe(wanted);
});

test.each(['true', 'ON', 'yes', '2'])('LONGHAUL_CUDA=%s is refused', (said) => {
  expect(() => isCudaWanted(said, noDriver)).toThrow(`LONGHAUL_CUDA is ${said}; it must be 1`);
});
