// Undoes the collections of a run: it restores single episodes and uncompressed batches, and removes the collection records. Tests that
// damage one record at a time need that. Deleted checkpoints do not come back.
import { readdirSync, rmSync, utimesSync, writeFileSync, mkdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { type EpisodesPlace, foldedKeyOf, readFolded } from '../../src/store/runs/folded-episodes.js';
import { collectionsFolder } from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { encodeRecord } from '../../src/store/records/record-codec.js';

/** `folder`: the folder of `store`, which is a directory store. */
export async function unfold(store: ObjectStore, folder: string, run: string): Promise<void> {
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    const place = placeOf(name);
    if (place !== null) await unfoldEpisodes(store, folder, place);
    if (!name.endsWith('/batch.safetensors.gz')) continue;
    writeFileSync(join(folder, name.slice(0, -'.gz'.length)), gunzipSync(await readFile(join(folder, name))));
    rmSync(join(folder, name));
  }
  rmSync(join(folder, collectionsFolder(run)), { recursive: true, force: true });
}

function placeOf(name: string): EpisodesPlace | null {
  const step = /^runs\/([^/]+)\/steps\/([0-9]+)\/episodes\.jsonl\.gz$/.exec(name);
  if (step) return { run: step[1] as string, step: Number(step[2]) };
  const evaluation = /^evals\/([0-9a-f]+)\/([0-9a-f]+)\/episodes\.jsonl\.gz$/.exec(name);
  return evaluation && { state: evaluation[1] as string, suite: evaluation[2] as string };
}

async function unfoldEpisodes(store: ObjectStore, folder: string, place: EpisodesPlace): Promise<void> {
  for (const [key, { record, recordedAt }] of (await readFolded(store, place)) ?? []) {
    const path = join(folder, key);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, await encodeRecord('episode', record));
    utimesSync(path, recordedAt, recordedAt);
  }
  rmSync(join(folder, foldedKeyOf(place)));
}
