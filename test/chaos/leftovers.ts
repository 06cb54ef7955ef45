// What a run must leave nowhere: its secrets, in whatever it has written; and sessions, on its environment server.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { writings } from '../../src/spec/secrets.js';
import type { ObjectStore } from '../../src/store/object-store.js';

/** Files and keys that hold a secret, however it is written. `givenIn`: files by name in which the secrets were given. */
export async function placesWithSecrets(
  { folder, store, givenIn }: { folder: string; store: ObjectStore; givenIn: readonly string[] },
  secrets: readonly string[],
): Promise<string[]> {
  const forbidden = secrets.flatMap((secret) => writings(secret)).map((text) => Buffer.from(text));
  if (forbidden.length === 0) return [];
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

/** Sessions of the server that are past their time and still hold a place. */
export async function leakedSessions(url: string): Promise<number> {
  const reply = await fetch(`${url}/x/sessions`, { signal: AbortSignal.timeout(10_000) });
  return ((await reply.json()) as { leaked: number }).leaked;
}
