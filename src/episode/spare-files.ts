// Keeps used files, emptied and open, for the next use. Some file systems (ext4) do not reuse an inode for a minute after its file was
// deleted, and scan all such inodes whenever a file is created. With hundreds of short-lived files per second, creating a file takes longer
// than writing it.
import * as fs from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const [close, ftruncate, rename, unlink] = [
  promisify(fs.close),
  promisify(fs.ftruncate),
  promisify(fs.rename),
  promisify(fs.unlink),
];

/** As many as the usual number of episodes in a step. Each spare file holds a file descriptor. */
const most = 512;

export class SpareFiles {
  private readonly free: { path: string; file: number }[] = [];
  /** Number of spare files, including those being added. */
  private held = 0;
  private given = 0;
  private made: Promise<unknown> | undefined;

  /**
   * `folder` must be on the same file system as the files, and used by this object only. Files left there by an earlier process are
   * deleted.
   */
  constructor(private readonly folder: string) {}

  /**
   * Moves a spare file to `path`, where no file may exist, and returns it: empty and open for appending. Null if there is no spare file.
   * Never rejects.
   */
  async take(path: string): Promise<number | null> {
    const spare = this.free.pop();
    if (!spare) return null;
    this.held -= 1;
    try {
      await rename(spare.path, path);
      return spare.file;
    } catch {
      await end(spare);
      return null;
    }
  }

  /** Takes back a file that is open for appending; `path` is free afterwards. Never rejects. */
  async give(path: string, file: number): Promise<void> {
    if (this.held >= most) return end({ path, file });
    this.held += 1;
    const spare = join(this.folder, `${this.given++}`);
    try {
      await ftruncate(file, 0);
      await (this.made ??= this.make());
      await rename(path, spare);
      this.free.push({ path: spare, file });
    } catch {
      this.held -= 1;
      await end({ path, file });
    }
  }

  private async make(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
    await mkdir(this.folder, { recursive: true });
  }
}

async function end({ path, file }: { path: string; file: number }): Promise<void> {
  await close(file).catch(() => undefined);
  await unlink(path).catch(() => undefined);
}
