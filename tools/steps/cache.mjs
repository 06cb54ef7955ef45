// The cache of built and downloaded tools. It is outside the tree; its keys are hashes of the content that a tool was built from.
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

export const repository = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export const cacheRoot =
  process.env.LONGHAUL_CACHE ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'longhaul');

/** Name of this checkout in caches that belong to one checkout. */
export const checkoutKey = createHash('sha256').update(repository).digest('hex').slice(0, 12);

export const platformKey = `${process.platform}-${process.arch}`;

/** Hash over the paths and contents of files and folders, and over plain strings: 16 hex characters of a sha256, enough for a cache key. */
export function contentKey(paths, extra = []) {
  const hash = createHash('sha256');
  for (const path of paths.flatMap((path) => filesBelow(path))) {
    hash
      .update(`${relative(repository, path)}\0`)
      .update(readFileSync(path))
      .update('\0');
  }
  for (const text of extra) hash.update(text).update('\0');
  return hash.digest('hex').slice(0, 16);
}

/** All files below a folder, in a fixed order. A file gives itself, and a missing path gives nothing. */
export function filesBelow(path) {
  if (!existsSync(path)) return [];
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path)
    .sort()
    .flatMap((name) => filesBelow(join(path, name)));
}

/** Writes the path of a tool to `dist/`, so that the product finds the tool without knowing the cache's keys. */
export function recordToolPath(name, path) {
  const note = join(repository, 'dist', `${name}-path`);
  if (existsSync(note) && readFileSync(note, 'utf8').trim() === path) return;
  mkdirSync(dirname(note), { recursive: true });
  writeFileSync(note, `${path}\n`);
}

/** A holder renews its lock this often. */
const lockRenewalMs = 5_000;
/** A lock that was not renewed for so long has no holder that works. */
const abandonedMs = 5 * 60_000;

/**
 * Runs `work` while no other process holds the same lock: two set-ups must not write into one build folder. Takes over the lock of a
 * process that has ended, or that has not renewed it for 5 minutes: its id may be another process's by now.
 */
export async function withLock(name, work) {
  const path = join(cacheRoot, 'locks', name);
  mkdirSync(dirname(path), { recursive: true });
  for (let round = 0; ; round += 1) {
    try {
      writeFileSync(path, String(process.pid), { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
      const holder = Number(readFileSync(path, 'utf8') || process.pid);
      if (!isAlive(holder) || sinceRenewal(path) > abandonedMs) {
        rmSync(path, { force: true });
        continue;
      }
      if (round % 40 === 0)
        console.log(`    another set-up (process ${holder}) is building ${name}; waiting for it`);
      await sleep(250);
    }
  }
  const renewal = setInterval(() => renew(path), lockRenewalMs);
  try {
    return await work();
  } finally {
    clearInterval(renewal);
    rmSync(path, { force: true });
  }
}

function renew(path) {
  const now = new Date();
  // A person may have removed the file.
  if (existsSync(path)) utimesSync(path, now, now);
}

/** Milliseconds; 0 if the lock is released meanwhile. */
function sinceRenewal(path) {
  const renewed = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
  return renewed === undefined ? 0 : Date.now() - renewed;
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}
