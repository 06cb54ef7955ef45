// A store in a directory. A key's file is absent or whole, even if the process or the machine dies, and it is durable before `create`
// returns. The order is: temporary file, fdatasync, link(2) (which is create-only), fsync of the folder.
import { randomBytes } from 'node:crypto';
import { type Dirent, type Stats, createReadStream } from 'node:fs';
import {
  link,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  stat,
  statfs,
  unlink,
  type FileHandle,
} from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { createFolderSync, type FolderSync } from './folder-sync.js';
import { checkKey, checkPrefix } from '../record-keys.js';
import type { ObjectInfo, ObjectStore } from './object-store.js';
import { BadKey, isNoSpace, StoreFull, StoreUnfit } from '../record-errors.js';
import { reporting, type Transfer } from './transfer.js';

/** Folder of temporary files. It is in the keys' file system, as link(2) needs; no key can begin with a dot. */
const temporaryFolder = '.incoming';
const pieceBytes = 1 << 20;
const statsAtOnce = 64;

/** Opens the store in `path`, and creates the folder if it is missing. */
export async function openDirectoryStore(path: string): Promise<ObjectStore> {
  const root = resolve(path);
  try {
    await mkdir(join(root, temporaryFolder), { recursive: true });
  } catch (error) {
    throw new StoreUnfit(
      `the store's directory ${root} cannot be created (${code(error)}): choose a directory that you may write to`,
      { cause: error },
    );
  }
  return new DirectoryStore(root);
}

class DirectoryStore implements ObjectStore {
  readonly address: string;
  private readonly root: string;
  private readonly sync: FolderSync;

  constructor(root: string) {
    this.root = root;
    this.address = `dir:${root}`;
    this.sync = createFolderSync(root);
  }

  async get(key: string): Promise<Uint8Array | null> {
    return orNull(() => readFile(this.path(key)));
  }

  async head(key: string): Promise<ObjectInfo | null> {
    const info = await orNull(() => stat(this.path(key)));
    return info?.isFile() ? objectInfo(key, info) : null;
  }

  async create(key: string, bytes: Uint8Array): Promise<'created' | 'exists'> {
    return this.createWith(key, (file) => file.writeFile(bytes));
  }

  async createFromFile(key: string, path: string, transfer?: Transfer): Promise<'created' | 'exists'> {
    return this.createWith(key, (file) => copyInto(file, path, transfer));
  }

  async getToFile(key: string, path: string, transfer?: Transfer): Promise<boolean> {
    const source = this.path(key);
    const info = await orNull(() => stat(source));
    if (!info?.isFile()) return false;
    const temporary = `${path}.${randomBytes(6).toString('hex')}.part`;
    const file = await open(temporary, 'wx');
    try {
      try {
        await copyInto(file, source, transfer);
        await file.datasync();
      } finally {
        await file.close();
      }
      await rename(temporary, path);
    } catch (error) {
      await rm(temporary, { force: true });
      throw isNoSpace(error) ? await this.full(dirname(path), path, error) : error;
    }
    return true;
  }

  async stream(key: string): Promise<AsyncIterable<Uint8Array> | null> {
    const path = this.path(key);
    const info = await orNull(() => stat(path));
    return info?.isFile() ? createReadStream(path, { highWaterMark: pieceBytes }) : null;
  }

  async *list(prefix: string): AsyncIterable<ObjectInfo> {
    checkPrefix(prefix);
    yield* this.walk(prefix.slice(0, prefix.lastIndexOf('/') + 1), prefix);
  }

  async listFolder(prefix: string): Promise<string[]> {
    checkPrefix(prefix);
    if (prefix !== '' && !prefix.endsWith('/'))
      throw new BadKey(`"${prefix}" is not a folder: it must end in "/"`);
    return this.names(prefix);
  }

  async delete(key: string): Promise<void> {
    const path = this.path(key);
    const gone = await orNull(async () => (await unlink(path), true));
    if (gone === null) return;
    let folder = dirname(path);
    await this.sync.settle(folder);
    // S3 has no empty folders: remove each folder that held only this key.
    while (folder !== this.root) {
      try {
        await rmdir(folder);
      } catch {
        return;
      }
      this.sync.forget(folder);
      folder = dirname(folder);
    }
  }

  async sweep(olderThanMs: number): Promise<number> {
    const folder = join(this.root, temporaryFolder);
    const limit = Date.now() - olderThanMs;
    let removed = 0;
    for (const name of (await orNull(() => readdir(folder))) ?? []) {
      const path = join(folder, name);
      const info = await orNull(() => stat(path));
      if (!info?.isFile() || info.mtimeMs > limit) continue;
      await rm(path, { force: true });
      removed++;
    }
    return removed;
  }

  private path(key: string): string {
    return join(this.root, checkKey(key));
  }

  private async createWith(
    key: string,
    write: (file: FileHandle) => Promise<unknown>,
  ): Promise<'created' | 'exists'> {
    const path = this.path(key);
    // This check is cheaper than a temporary file, and safe: a key's bytes never change.
    const there = await orNull(() => stat(path));
    if (there) return this.existing(key, path, there);
    const temporary = join(this.root, temporaryFolder, `${process.pid}-${randomBytes(8).toString('hex')}`);
    try {
      const file = await this.openTemporary(temporary);
      try {
        await write(file);
        await file.datasync();
      } finally {
        await file.close();
      }
      const linked = await this.link(temporary, path);
      if (!linked) return this.existing(key, path, await stat(path));
    } catch (error) {
      throw isNoSpace(error) ? await this.full(this.root, key, error) : error;
    } finally {
      await rm(temporary, { force: true });
    }
    await this.sync.settle(dirname(path));
    return 'created';
  }

  private async existing(key: string, path: string, info: Stats): Promise<'exists'> {
    if (!info.isFile())
      throw new BadKey(`key "${key}" is also the folder of other keys; a directory store cannot have both`);
    // The file's author may not have synced the folder yet, and the caller will rely on the file.
    await this.sync.settle(dirname(path));
    return 'exists';
  }

  private async openTemporary(temporary: string): Promise<FileHandle> {
    try {
      return await open(temporary, 'wx');
    } catch (error) {
      if (code(error) !== 'ENOENT') throw error;
      await mkdir(dirname(temporary), { recursive: true });
      return open(temporary, 'wx');
    }
  }

  /** False if `path` exists already. */
  private async link(temporary: string, path: string): Promise<boolean> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.sync.ensureFolder(dirname(path));
        await link(temporary, path);
        return true;
      } catch (error) {
        if (code(error) === 'EEXIST') return false;
        // Another process's delete may remove the empty folder between the two calls.
        if (code(error) !== 'ENOENT' || attempt === 5) throw error;
        this.sync.forget(dirname(path));
      }
    }
  }

  private async *walk(folder: string, prefix: string): AsyncIterable<ObjectInfo> {
    const names = (await this.names(folder)).filter((name) => {
      const key = folder + name;
      return key.startsWith(prefix) || (name.endsWith('/') && prefix.startsWith(key));
    });
    for (let start = 0; start < names.length; start += statsAtOnce) {
      const some = names.slice(start, start + statsAtOnce);
      const infos = await Promise.all(
        some.map(async (name) => (name.endsWith('/') ? null : await this.head(folder + name))),
      );
      for (const [i, name] of some.entries()) {
        const info = infos[i];
        if (name.endsWith('/')) yield* this.walk(folder + name, prefix);
        else if (info) yield info;
      }
    }
  }

  /** Names in key order; a folder is named, and sorted, as `name/`. */
  private async names(folder: string): Promise<string[]> {
    const entries: Dirent[] | null = await orNull(() =>
      readdir(join(this.root, folder), { withFileTypes: true }),
    );
    const names = (entries ?? [])
      .filter((entry) => !entry.name.startsWith('.') && (entry.isDirectory() || entry.isFile()))
      .map((entry) => (entry.isDirectory() ? `${entry.name}/` : entry.name));
    return names.sort();
  }

  private async full(folder: string, what: string, cause: unknown): Promise<StoreFull> {
    const space = await statfs(folder).catch(() => null);
    const free = space ? `${space.bavail * space.bsize} bytes are free` : 'the free space is unknown';
    return new StoreFull(
      `no space for ${what} in ${this.address} (${code(cause)}; ${free}): free some space there; nothing was lost`,
      { cause },
    );
  }
}

async function copyInto(
  file: FileHandle,
  path: string,
  { signal, onProgress }: Transfer = {},
): Promise<void> {
  const source = createReadStream(path, { highWaterMark: pieceBytes, ...(signal ? { signal } : {}) });
  for await (const bytes of reporting(source, onProgress)) {
    for (let written = 0; written < bytes.length;) {
      written += (await file.write(bytes, written)).bytesWritten;
    }
  }
}

function objectInfo(key: string, info: Stats): ObjectInfo {
  return { key, size: info.size, modified: info.mtime };
}

/** Null if the path does not exist, is a folder, or has a file where it needs a folder. */
async function orNull<T>(read: () => Promise<T>): Promise<T | null> {
  try {
    return await read();
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'EISDIR'].includes(code(error))) return null;
    throw error;
  }
}

function code(error: unknown): string {
  return (error as NodeJS.ErrnoException | null)?.code ?? String(error);
}
