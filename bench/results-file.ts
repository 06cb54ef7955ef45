// bench/results.json: what the last `bench --full` measured, part by part, so that it can go on where it was interrupted.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import type { MeasuredPart, PartValues, Provenance } from './figure.js';
import type { Machine } from './repository.js';

export interface StoredPart extends Provenance {
  /** `codeHash(part)` when it was measured. */
  code: string;
  values: PartValues;
  notes: string[];
  /** Absent in older ones. */
  stolen?: number;
}

export interface Results {
  schema: 'longhaul.bench/1';
  machine: Machine | null;
  parts: Record<string, StoredPart>;
}

export function readResults(path: string): Results {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return { schema: 'longhaul.bench/1', machine: null, parts: {} };
  }
  const results = JSON.parse(text) as Results;
  if (results.schema !== 'longhaul.bench/1')
    throw new Error(
      `${path} has the schema ${String(results.schema)}, not longhaul.bench/1; remove it and measure anew`,
    );
  return results;
}

/** Parts in order of their names, so that a new measurement shows as a small difference. */
export function writeResults(path: string, results: Results): void {
  const parts = Object.fromEntries(Object.entries(results.parts).sort(([a], [b]) => (a < b ? -1 : 1)));
  writeFileSync(`${path}.draft`, `${JSON.stringify({ ...results, parts }, null, 2)}\n`);
  renameSync(`${path}.draft`, path);
}

export function fromEarlier(part: StoredPart, code: string): MeasuredPart {
  const { date, commit, values, notes, stolen = 0 } = part;
  return { date, commit, values, notes, stolen, current: part.code === code, fresh: false };
}
