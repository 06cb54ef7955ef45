// All problems of a run spec, reported at once.

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
