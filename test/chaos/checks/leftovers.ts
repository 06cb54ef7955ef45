// Finds what a run must not leave behind: its secrets in anything that it has written, and sessions on its environment server.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { writings } from '../../../src/base/secrets.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';

/** The grading token of a stack. `givenIn`: the file below the stack's folder from which its processes read the token. */
export function gradingTokenOf(folder: string): { texts: readonly string[]; givenIn: readonly string[] } {
  const name = 'grading-token';
  return { texts: [readFileSync(join(folder, name), 'utf8').trim()], givenIn: [name] };
}

/**
 * Files and keys that contain a secret in any encoding. `givenIn`: names of the files that may contain the secrets. Throws if `secrets` is
 * empty.
 */
export async function placesWithSecrets(
  { folder, store, givenIn }: { folder: string; store: ObjectStore; givenIn: readonly string[] },
  secrets: readonly string[],
): Promise<string[]> {
  if (secrets.length === 0 || secrets.includes(''))
    throw new Error('there is no secret to search for: no place would be found');
  const forbidden = secrets.flatMap((secret) => writings(secret)).map((text) => Buffer.from(text));
  const holds = (bytes: Buffer): boolean => forbidden.some((secret) => bytes.includes(secret));
  const places: string[] = [];
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    const path = join(folder, name);
    if (givenIn.includes(name) || !isFile(path)) continue;
    if (holds(Buffer.from(path)) || holds(plain(name, readFileSync(path))))
      places.push(relative(folder, path));
  }
  for await (const { key } of store.list('')) {
    const bytes = await store.get(key);
    if (bytes && (holds(Buffer.from(key)) || holds(plain(key, Buffer.from(bytes))))) places.push(key);
  }
  return places;
}

const plain = (name: string, bytes: Buffer): Buffer => {
  try {
    return name.endsWith('.gz') ? gunzipSync(bytes) : bytes;
  } catch {
    // A put that was killed halfway has left a draft, which is no whole gzip file.
    return bytes;
  }
};

/** Also false if the file has disappeared since it was listed. */
function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/**
 * The server notices a vanished client after 40 s. Then the session waits 30 s for another socket, and a sweep comes every 5 s. The
 * remaining time is for a server that must first restart after the last fault.
 */
const sessionsEndWithinMs = 85_000;

/**
 * Counts sessions that the server still has after their clients were gone long enough. Call it when all clients have gone: then any session
 * that remains was leaked, with or without a socket.
 */
export async function leakedSessions(url: string, withinMs = sessionsEndWithinMs): Promise<number> {
  const giveUpAt = Date.now() + withinMs;
  for (;;) {
    const timeIsUp = Date.now() > giveUpAt;
    const sessions = await sessionsOf(url).catch((error: unknown) => {
      if (timeIsUp) throw error;
      return null;
    });
    if (sessions === 0 || (timeIsUp && sessions !== null)) return sessions;
    await delay(250);
  }
}

async function sessionsOf(url: string): Promise<number> {
  const reply = await fetch(`${url}/x/sessions`, { signal: AbortSignal.timeout(10_000) });
  return ((await reply.json()) as { sessions: number }).sessions;
}
