import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('a thread that waits for calls does not keep its process alive, and a call does', async () => {
  const preloads = ['typescript-register.mjs', 'worker-threads.ts'].flatMap((name) => [
    '--import',
    new URL(`../support/preloads/${name}`, import.meta.url).href,
  ]);
  const program = fileURLToPath(new URL('./idle-thread.ts', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [...preloads, program], {
    timeout: 60_000,
  });
  expect(stdout).toBe('one\nended\n');
});
