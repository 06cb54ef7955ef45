// A figure: a number beside its bar. Values come from parts, which are measured one at a time and may be of an earlier day.

export type Bar =
  { atMost: number } | { below: number } | { atLeast: number } | { between: [number, number] } | null;

/** Where the values of a part come from, for people. */
export interface Provenance {
  date: string;
  commit: string;
}

/** Numbers of one measured part by name, e.g. `quickstart/seed-1` → {seconds, before, after}. */
export type PartValues = Record<string, number>;

/** What measuring a part gives. */
export interface Measured {
  values: PartValues;
  notes?: string[];
}

export interface MeasuredPart extends Provenance {
  values: PartValues;
  /** What the values do not say: what was skipped, what was found. */
  notes: string[];
  /** Share of the CPU time that was wanted meanwhile, which others got. */
  stolen: number;
  /** False where the measured code has changed since. */
  current: boolean;
  /** False where it is of an earlier run. */
  fresh: boolean;
}

/** Reads a value of a part; throws `NotMeasured`. */
export type Lookup = (part: string, value: string) => number;

export interface FigureDefinition {
  name: string;
  /** What `npm run bench NAME` takes to measure it. */
  measurement: string;
  unit: string;
  /** Null: no bar, it is shown for comparison. */
  bar: Bar;
  /** One sentence for docs/benchmarks.md. */
  what: string;
  value(of: Lookup): number;
}

export interface Figure {
  name: string;
  /** Null: it was not measured, or measuring it failed. */
  value: number | null;
  unit: string;
  bar: string | null;
  holds: boolean;
  /** Of the oldest part, where one is of an earlier run. */
  measured?: Provenance;
  note?: string;
}

export class NotMeasured extends Error {}

/** Of CPU time that others got: less is seen in no figure. */
const worthTelling = 0.03;

export function evaluate(definition: FigureDefinition, parts: ReadonlyMap<string, MeasuredPart>): Figure {
  const used = new Set<MeasuredPart>();
  const lookup: Lookup = (part, name) => {
    const measured = parts.get(part);
    const value = measured?.values[name];
    if (!measured || value === undefined) throw new NotMeasured(`${part} has not been measured`);
    used.add(measured);
    return value;
  };
  const { name, unit, bar } = definition;
  const common = { name, unit, bar: barText(bar) };
  try {
    const value = definition.value(lookup);
    const stale = [...used].some((part) => !part.current);
    const stolen = [...used].reduce((most, part) => Math.max(most, part.stolen), 0);
    const oldest = [...used].filter((part) => !part.fresh).sort((a, b) => (a.date < b.date ? -1 : 1))[0];
    const notes = [
      ...(stale ? ['the measured code has changed since'] : []),
      ...new Set([...used].flatMap((part) => part.notes)),
      ...(stolen < worthTelling ? [] : [`${(stolen * 100).toFixed(0)} % of the CPU time went to others`]),
    ];
    return {
      ...common,
      value: rounded(value),
      holds: bar === null || (!stale && meets(value, bar)),
      ...(oldest ? { measured: { date: oldest.date, commit: oldest.commit } } : {}),
      ...(notes.length > 0 ? { note: notes.join('; ') } : {}),
    };
  } catch (error) {
    if (!(error instanceof NotMeasured)) throw error;
    return { ...common, value: null, holds: bar === null, note: error.message };
  }
}

export function meets(value: number, bar: Exclude<Bar, null>): boolean {
  if ('atMost' in bar) return value <= bar.atMost;
  if ('below' in bar) return value < bar.below;
  if ('atLeast' in bar) return value >= bar.atLeast;
  return value >= bar.between[0] && value <= bar.between[1];
}

export function barText(bar: Bar): string | null {
  if (bar === null) return null;
  if ('atMost' in bar) return bar.atMost === 0 ? '= 0' : `≤ ${bar.atMost}`;
  if ('below' in bar) return `< ${bar.below}`;
  if ('atLeast' in bar) return `≥ ${bar.atLeast}`;
  return `${bar.between[0]} to ${bar.between[1]}`;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const [low, high] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[middle]];
  return low === undefined || high === undefined ? Number.NaN : (low + high) / 2;
}

/** Four significant digits below 10,000, for reading; bars are held against the value itself. */
export function rounded(value: number): number {
  return Math.abs(value) >= 10_000 ? Math.round(value) : Number(value.toPrecision(4));
}
