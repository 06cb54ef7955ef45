// A file that only grows, by whole entries. If a process is killed in the middle of a write, the last entry is torn: the next opening cuts
// it off, and the tracker then writes this entry again.
import { constants } from 'node:fs';
import { mkdir, open, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';

const chunkBytes = 1 << 20;

/** Reads the whole entries at the beginning of `bytes`, and returns their total size in bytes. */
type TakeEntries = (bytes: Buffer) => number;

export class AppendFile {
  private constructor(
    readonly path: string,
    readonly handle: FileHandle,
    private sizeBytes: number,
  ) {}

  /** Passes the file to `take` piece by piece, and cuts off the end that `take` did not accept. Creates the file and its folder. */
  static async open(path: string, take: TakeEntries): Promise<AppendFile> {
    await mkdir(dirname(path), { recursive: true });
    const handle = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_APPEND, 0o644);
    try {
      const whole = await readEntries(handle, take);
      if ((await handle.stat()).size > whole) await handle.truncate(whole);
      await syncFolder(dirname(path));
      return new AppendFile(path, handle, whole);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  get size(): number {
    return this.sizeBytes;
  }

  /** Resolves when the bytes are on disk. After a failure, the file must be opened again. */
  async append(bytes: Uint8Array): Promise<void> {
    const { size } = await this.handle.stat();
    if (size !== this.sizeBytes) {
      throw new Error(
        `${this.path} has ${size} bytes, but this process wrote ${this.sizeBytes}: another process writes it too. ` +
          'Only one process may follow a run',
      );
    }
    await this.handle.appendFile(bytes);
    await this.handle.datasync();
    this.sizeBytes += bytes.length;
  }

  close(): Promise<void> {
    return this.handle.close();
  }
}

async function readEntries(handle: FileHandle, take: TakeEntries): Promise<number> {
  let whole = 0;
  let rest: Buffer = Buffer.alloc(0);
  for (let position = 0; ;) {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(chunkBytes), 0, chunkBytes, position);
    if (bytesRead === 0) return whole;
    position += bytesRead;
    const read = buffer.subarray(0, bytesRead);
    const bytes = rest.length === 0 ? read : Buffer.concat([rest, read]);
    const taken = take(bytes);
    whole += taken;
    rest = bytes.subarray(taken);
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
