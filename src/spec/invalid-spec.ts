// All problems of a run spec, reported at once.

export interface SpecProblem {
  /** `trainer.lr`, `warm_start[0].updates`; empty for the spec as a whole. */
  path: string;
  problem: string;
  /** How to fix it; may be empty if the problem says it. */
  fix: string;
}

export class InvalidSpec extends Error {
  constructor(
    readonly problems: readonly SpecProblem[],
    /** File that held the spec, when there was one. */
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
