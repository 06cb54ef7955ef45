// A full disk is named in words, once, and so is its end.
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { fullDiskNote, watchDisk } from '../../src/stack/disk-space.js';

const mib = 1024 * 1024;

it('a full disk is named with what is free and what to do', () => {
  expect(fullDiskNote('/srv/stack', () => 0.5 * mib)).toMatch(
    /^the disk of \/srv\/stack is full \(0\.5 MiB free\): make room there/,
  );
  expect(fullDiskNote('/srv/stack', () => 900 * mib)).toBeNull();
  expect(fullDiskNote('/there/is/no/such/folder')).toBeNull();
});

it('a watch says it once, and says when there is room again', async () => {
  const said: string[] = [];
  let free = 900 * mib;
  const end = watchDisk('/srv', (message) => said.push(message), { everyMs: 5, free: () => free });
  for (const [index, bytes] of [0, 900 * mib, 0].entries()) {
    free = bytes;
    await expect.poll(() => said.length, { interval: 5 }).toBe(index + 1);
    await delay(30);
  }
  end();
  expect(said).toMatchObject([
    expect.stringContaining('is full'),
    'the disk of /srv has room again',
    expect.stringContaining('is full'),
  ]);
});
