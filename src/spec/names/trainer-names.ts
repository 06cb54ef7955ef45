// Settings of other trainers that have another name here, or none (trainers.yaml). `skyrl-names.ts` has those of SkyRL.
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';

/** A table beside this file. The tables are read only for a key that a spec does not have. */
export function namesIn<Table>(file: string): Table {
  return parse(readFileSync(new URL(file, import.meta.url), 'utf8')) as Table;
}

const plain = (part: string): string => part.toLowerCase().replaceAll(/[-_\s]/g, '');

let tables: { names: Map<string, string>; parts: Map<string, string> } | undefined;

/** Remedies by a name or the end of a path, and by a part of a path below which nothing has a place here. */
function remedies(): NonNullable<typeof tables> {
  if (tables) return tables;
  tables = { names: new Map(), parts: new Map() };
  for (const [remedy, list] of Object.entries(namesIn<Record<string, string>>('trainers.yaml')))
    for (const name of list.split(' ')) {
      const part = /^(.+)\.\*$/.exec(name)?.[1];
      if (part === undefined) tables.names.set(name.split('.').map(plain).join('.'), remedy);
      else tables.parts.set(plain(part), remedy);
    }
  return tables;
}

/** All remedies, for tests. */
export function namesOfTrainers(): string[] {
  const { names, parts } = remedies();
  return [...new Set([...names.values(), ...parts.values()])];
}

/**
 * What to write instead of a setting of another trainer, which may be spelt with other separators or capitals; null if no trainer has it.
 * The longest end of the path counts: `rollout.n` also as `actor_rollout_ref.rollout.n`.
 */
export function remedyOf(path: readonly string[]): string | null {
  const spelt = path.map(plain);
  const { names, parts } = remedies();
  const ends = spelt.map((_, from) => spelt.slice(from).join('.'));
  const found = [...spelt.map((part) => parts.get(part)), ...ends.map((end) => names.get(end))];
  return found.find((remedy) => remedy !== undefined) ?? null;
}

/** True if settings below such a key have no counterpart here. */
export function isWithoutPlace(key: string): boolean {
  return remedies().parts.has(plain(key));
}

/** The key that corresponds to a setting of another trainer, such as `trainer.lr` to `learning_rate`. Null unless there is exactly one. */
export function keyOf(path: readonly string[]): string | null {
  return /^write ((?:[a-z_]+\.)*[a-z_]+)(?![\w.])/.exec(remedyOf(path) ?? '')?.[1] ?? null;
}
