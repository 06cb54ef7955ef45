// bench/results.json: the last measurement of each part, with the day, commit and machine on which the part was measured.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import type { MeasuredPart, PartValues, Provenance } from './figure.js';

export interface StoredPart extends Provenance {
  values: PartValues;
  notes: string[];
  /** Absent in older results. */
  stolen?: number;
}

const schema = 'longhaul.bench/2';

export interface Results {
  schema: typeof schema;
  parts: Record<string, StoredPart>;
}

export function readResults(path: string): Results {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return { schema, parts: {} };
  }
  const results = JSON.parse(text) as Results;
  if (results.schema !== schema)
    throw new Error(
      `${path} has the schema ${String(results.schema)}, not ${schema}: restore the file of this commit`,
    );
  return results;
}

/** Writes the parts sorted by name, so that a new measurement shows as a small difference. */
export function writeResults(path: string, results: Results): void {
  const parts = Object.fromEntries(Object.entries(results.parts).sort(([a], [b]) => (a < b ? -1 : 1)));
  writeFileSync(`${path}.draft`, `${JSON.stringify({ ...results, parts }, null, 2)}\n`);
  renameSync(`${path}.draft`, path);
}

export function fromEarlier({ stolen = 0, ...part }: StoredPart): MeasuredPart {
  return { ...part, stolen, fresh: false };
}
