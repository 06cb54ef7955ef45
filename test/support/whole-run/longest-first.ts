// The order of test files. Files that take more than a minute come first, so that none of them runs alone at the end. Other slow files follow:
// files that share a cluster run one after the other in the same processes.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Sorted by duration, the longest first. Vitest sorts files that it has not run yet by size, which does not show how long they wait. */
const longest = [
  'policy/served/exactly-once',
  'policy/served/lost-weights',
  'e2e/activity-controls',
  'e2e/faults/fault-figures',
  'e2e/faults/lost-dispatch',
  'e2e/fork-and-rewind',
  'e2e/faults/faults',
  'policy/served/simulation',
];

export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const paths = longest.map((name) => join(this.ctx.config.root, 'test', `${name}.slow.test.ts`));
    for (const path of paths)
      if (!existsSync(path))
        throw new Error(`the list of the longest test files names ${path}, which is missing`);
    const sorted = await super.sort(files);
    const long = paths.flatMap((path) => sorted.find(({ moduleId }) => moduleId === path) ?? []);
    if (long.length === 0) return sorted;
    const others = sorted.filter((file) => !long.includes(file));
    const isSlow = ({ moduleId }: TestSpecification): boolean => moduleId.endsWith('.slow.test.ts');
    return [...long, ...others.filter(isSlow), ...others.filter((file) => !isSlow(file))];
  }
}
