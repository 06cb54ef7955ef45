// Files that have been used, emptied and kept open for the next use. Some file systems (ext4) do not use an inode again for a minute
// after its file was deleted, and look through all of those whenever a file is made: with hundreds of short-lived files a second,
// every file that anybody makes there costs more than what is written to it.
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
  readonly #free: { path: string; file: number }[] = [];
  /** With those that are on their way. */
  #held = 0;
  #given = 0;
  #made: Promise<unknown> | undefined;

  /** `folder`: on the same file system as the files; this object's alone. What an earlier process has left there goes. */
  constructor(private readonly folder: string) {}

  /** Moves a spare file to `path`, where none may be: empty, open for appending. Null where there is none. Never rejects. */
  async take(path: string): Promise<number | null> {
    const spare = this.#free.pop();
    if (!spare) return null;
    this.#held -= 1;
    try {
      await rename(spare.path, path);
      return spare.file;
    } catch {
      await end(spare);
      return null;
    }
  }

  /** Takes a file that is open for appending out of the way: after it, nothing is at `path`. Never rejects. */
  async give(path: string, file: number): Promise<void> {
    if (this.#held >= most) return end({ path, file });
    this.#held += 1;
    const spare = join(this.folder, `${this.#given++}`);
    try {
      await ftruncate(file, 0);
      await (this.#made ??= this.#make());
      await rename(path, spare);
      this.#free.push({ path: spare, file });
    } catch {
      this.#held -= 1;
      await end({ path, file });
    }
  }

  async #make(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
    await mkdir(this.folder, { recursive: true });
  }
}

async function end({ path, file }: { path: string; file: number }): Promise<void> {
  await close(file).catch(() => undefined);
  await unlink(path).catch(() => undefined);
}
