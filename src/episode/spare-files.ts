// Used files, emptied and kept open for the next use. Some file systems (ext4) do not reuse an inode for a minute after its file was
// deleted, and scan all of those whenever a file is made: with hundreds of short-lived files a second, making any file there costs more
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

/** As many episodes as a step usually has; each holds a file descriptor. */
const most = 512;

export class SpareFiles {
  private readonly free: { path: string; file: number }[] = [];
  /** Includes files that are being added. */
  private held = 0;
  private given = 0;
  private made: Promise<unknown> | undefined;

  /** `folder`: on the same file system as the files, and used by this object alone. Files of an earlier process there are removed. */
  constructor(private readonly folder: string) {}

  /** Moves a spare file to the free `path`: empty, open for appending. Null if no file is spare. Never rejects. */
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

  /** Takes a file that is open for appending; afterwards `path` is free. Never rejects. */
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
