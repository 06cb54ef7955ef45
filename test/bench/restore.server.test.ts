// The small form of the restore benchmark, and the files that it refuses to measure.
import { existsSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { cold, measureRestore } from '../../bench/restore/restore.js';

/** Types of file systems that do not read from a device of this machine: tmpfs, ramfs, 9p, NFS, FUSE (statfs(2)). */
const withoutDevice = [0x01021994, 0x858458f6, 0x01021997, 0x6969, 0x65735546];
const readsDevice = (folder: string): boolean => !withoutDevice.includes(statfsSync(folder).type);
const memory = '/dev/shm';

if (!readsDevice(tmpdir()))
  console.warn(`skipped: the restore from a device: ${tmpdir()} is on a file system that reads from none`);
it.runIf(readsDevice(tmpdir()))(
  'the benchmark reads a state from the device with both readers (needs a temporary folder on a disk)',
  async () => {
    const figures = await measureRestore(64, 1);
    expect(figures.bytes).toBeGreaterThan(1_000_000);
    expect(figures.restore_share).toBeGreaterThan(0);
    expect(figures.disk_bytes_per_second).toBeGreaterThan(0);
  },
);

if (!existsSync(memory) || readsDevice(memory))
  console.warn(`skipped: the refusal of a file in memory: ${memory} is no file system in memory`);
it.runIf(existsSync(memory) && !readsDevice(memory))(
  'the benchmark refuses a file that is read from memory (/dev/shm)',
  async () => {
    const folder = mkdtempSync(join(memory, 'longhaul-restore-'));
    try {
      const path = join(folder, 'state');
      writeFileSync(path, Buffer.alloc(1 << 20, 1));
      await expect(cold(path, 'self', () => readFile(path))).rejects.toThrow(/read from a device/);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
