// What a run must leave nowhere: its secrets, in whatever it has written; and sessions, on its environment server.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { writings } from '../../../src/base/secrets.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';

/** Grading token of a stack: `givenIn` is the file below its folder through which its processes got it. */
export function gradingTokenOf(folder: string): { texts: readonly string[]; givenIn: readonly string[] } {
  const name = 'grading-token';
  return { texts: [readFileSync(join(folder, name), 'utf8').trim()], givenIn: [name] };
}

/**
 * Files and keys that hold a secret, however it is written. `givenIn`: files by name in which the secrets were given. Throws where
 * there is no secret.
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
    // A put that was killed in its midst has left a draft.
    return bytes;
  }
};

/** False too for what has gone since it was listed. */
function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/**
 * A client that vanished is noticed after 40 s, then its session waits 30 s for another socket, then a sweep comes that is due every
 * 5 s; and a server that the last fault took away may be on its way back.
 */
const sessionsEndWithinMs = 85_000;

/**
 * Sessions that the server still counts when all whose clients have gone have had their time to end. Where all clients have gone, each
 * of them was forgotten, with a socket or without.
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
