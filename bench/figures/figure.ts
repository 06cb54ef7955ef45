// A figure is a number with a bar: the bound that the number must meet. The number is computed from the values of parts. Each part is
// measured separately, perhaps on an earlier day.

/** Bounds of a value, as people read them; '' if the figure is shown only for comparison. */
export type Bar = `${'≤' | '<' | '≥' | '='} ${number}` | `${number} to ${number}` | '';

/** When, on which machine and from which code a part was measured, for people. */
export interface Provenance {
  /** ISO 8601 */
  date: string;
  /** Short commit, followed by `+` if the checkout had uncommitted changes. */
  commit: string;
  machine: string;
}

/** Numbers of one measured part, by name. Example: `quickstart/seed-1` has {seconds, before, after}. */
export type PartValues = Record<string, number>;

/** Result of measuring a part once. */
export interface Measured {
  values: PartValues;
  notes?: string[];
}

export interface MeasuredPart extends Provenance {
  values: PartValues;
  /** Facts that the values do not show, for example which measurements were skipped. */
  notes: string[];
  /** Share of the wanted CPU time that other virtual machines got during the measurement, 0..1. */
  stolen: number;
  /** False if an earlier command measured the part. */
  fresh: boolean;
}

/** Reads a value of a part. Throws `NotMeasured`. */
export type Lookup = (part: string, value: string) => number;

export interface FigureDefinition {
  name: string;
  /** The benchmark that measures it: `npm run bench BENCHMARK`. */
  benchmark: string;
  unit: string;
  bar: Bar;
  /** A short description for docs/benchmarks.md. */
  what: string;
  value(of: Lookup): number;
}

export interface Figure {
  name: string;
  /** Null if it was not measured, or if measuring it failed. */
  value: number | null;
  unit: string;
  bar: string | null;
  holds: boolean;
  /** Provenance of the oldest part, if an earlier command measured one. */
  measured?: Provenance;
  /** Share of the wanted CPU time that other virtual machines got during the measurement; absent below `notedShare`. */
  stolen?: number;
  note?: string;
}

export class NotMeasured extends Error {}

/** A smaller share of stolen CPU time is not worth a note. */
const notedShare = 0.03;

export function evaluate(
  definition: FigureDefinition,
  parts: ReadonlyMap<string, MeasuredPart | null>,
): Figure {
  const used = new Set<MeasuredPart>();
  const lookup: Lookup = (part, name) => {
    const measured = parts.get(part);
    const value = measured?.values[name];
    if (!measured) throw new NotMeasured(`${part} has not been measured`);
    if (value === undefined) throw new NotMeasured(`${name} of ${part} has not been measured`);
    used.add(measured);
    return value;
  };
  const { name, unit, bar } = definition;
  const shown = bar === '' ? null : bar;
  try {
    const value = definition.value(lookup);
    const stolen = Math.max(...[...used].map((part) => part.stolen));
    const oldest = [...used].filter((part) => !part.fresh).sort((a, b) => (a.date < b.date ? -1 : 1))[0];
    const notes = [...new Set([...used].flatMap((part) => part.notes))];
    return {
      ...{ name, value: rounded(value), unit, bar: shown, holds: meets(value, bar) },
      ...(oldest && { measured: { date: oldest.date, commit: oldest.commit, machine: oldest.machine } }),
      ...(stolen >= notedShare && { stolen }),
      ...(notes.length > 0 && { note: notes.join('; ') }),
    };
  } catch (error) {
    if (!(error instanceof NotMeasured)) throw error;
    return { name, value: null, unit, bar: shown, holds: bar === '', note: error.message };
  }
}

/** Names of the parts that a figure reads, in order. */
export function partsOf(definition: FigureDefinition): string[] {
  const names = new Set<string>();
  definition.value((part) => {
    names.add(part);
    return 1;
  });
  return [...names];
}

export function meets(value: number, bar: Bar): boolean {
  if (bar === '') return true;
  const [first = '', second = '', third] = bar.split(' ');
  const bound = Number(second);
  if (third !== undefined) return value >= Number(first) && value <= Number(third);
  if (first === '≤') return value <= bound;
  if (first === '<') return value < bound;
  if (first === '≥') return value >= bound;
  return value === bound;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const [low, high] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[middle]];
  return low === undefined || high === undefined ? Number.NaN : (low + high) / 2;
}

/** Four significant digits if the value is below 10,000, for reading. Bars are compared with the exact value. */
export function rounded(value: number): number {
  return Math.abs(value) >= 10_000 ? Math.round(value) : Number(value.toPrecision(4));
}
