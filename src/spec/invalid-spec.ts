// All problems of a spec, reported at once. A file of another kind is one problem, not one for each key.

export interface SpecProblem {
  /** Path such as `trainer.lr` or `warm_start[0].updates`; empty if the problem concerns the whole spec. */
  path: string;
  problem: string;
  /** How to fix the problem; may be empty if `problem` says it. */
  fix: string;
}

export class InvalidSpec extends Error {
  constructor(
    readonly problems: readonly SpecProblem[],
    /** The spec's file; absent if the spec was passed as a value. */
    readonly file?: string,
  ) {
    super(describe(problems, file));
    this.name = 'InvalidSpec';
  }
}

function describe(problems: readonly SpecProblem[], file: string | undefined): string {
  const where = file === undefined ? 'the run spec' : file;
  const count = problems.length === 1 ? 'one problem' : `${problems.length} problems`;
  const lines = problems.map(({ path, problem, fix }) => {
    const subject = path === '' ? problem : `${path}: ${problem}`;
    return fix === '' ? `  ${subject}` : `  ${subject}; ${fix}`;
  });
  return [`${where} has ${count}:`, ...lines].join('\n');
}

type SpecKind = 'run' | 'dataset' | 'sweep';

/** Keys that only this kind has. */
const marks: Record<SpecKind, readonly string[]> = {
  run: ['trainer', 'generator', 'model', 'data', 'warm_start'],
  dataset: ['tasks', 'version', 'solutions', 'demonstrations', 'teacher', 'split'],
  sweep: ['checkpoints', 'suites', 'baseline'],
};

const names: Record<SpecKind, string> = { run: 'a run spec', dataset: 'a dataset spec', sweep: 'a sweep' };

const takers: Record<SpecKind, string> = {
  run: '`longhaul train` takes it',
  dataset: '`longhaul data prepare` takes it',
  sweep: '`longhaul sweeps run` and `sweeps apply` take it',
};

/** Throws `InvalidSpec` if the value has keys of another kind, and none of `wanted`. */
export function refuseOtherKind(input: unknown, wanted: SpecKind, where: string): void {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return;
  const has = (kind: SpecKind): number => marks[kind].filter((key) => key in input).length;
  if (has(wanted) > 0) return;
  const found = (Object.keys(marks) as SpecKind[]).sort((a, b) => has(b) - has(a))[0];
  if (found === undefined || has(found) === 0) return;
  throw new InvalidSpec([{ path: '', problem: `this is ${names[found]}`, fix: takers[found] }], where);
}
