// Prints the slowest files, why tests were skipped, and one last line with the counts. `tools/test.mjs` prints that line itself, because it
// adds the engine's own tests; it reads the counts from a file.
import { writeFileSync } from 'node:fs';
import type { Reporter, SerializedError, TestCase, TestModule } from 'vitest/node';

export interface TestCounts {
  passed: number;
  failed: number;
  skipped: number;
}

export default class CountsReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    const counts = countTests(modules, unhandledErrors.length);
    const skipped = modules.flatMap((module) => [...module.children.allTests('skipped')]);
    if (skipped.length > 0) console.log(['\nSkipped:', ...skipped.map(skipLine)].join('\n'));
    const slowest = slowestFiles(modules);
    if (slowest.length > 0) console.log(['\nThe slowest files, in seconds:', ...slowest].join('\n'));
    const resultsFile = process.env['LONGHAUL_TEST_RESULTS'];
    if (resultsFile) writeFileSync(resultsFile, JSON.stringify(counts));
    else console.log(`${counts.passed} passed, ${counts.failed} failed`);
  }
}

/** A file that cannot be loaded, a failed hook and an unhandled error count as failures, so that each of them is seen. */
export function countTests(modules: readonly TestModule[], unhandledErrors: number): TestCounts {
  const counts: TestCounts = { passed: 0, failed: unhandledErrors, skipped: 0 };
  for (const module of modules) {
    const before = counts.failed;
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      if (state === 'passed' || state === 'failed' || state === 'skipped') counts[state] += 1;
    }
    if (module.state() === 'failed' && counts.failed === before) counts.failed += 1;
  }
  return counts;
}

/** The ten files with the most time in loading, hooks and tests. Files run beside each other, so their sum exceeds the run's time. */
export function slowestFiles(modules: readonly TestModule[]): string[] {
  return modules
    .map((module) => {
      const { collectDuration, setupDuration, duration } = module.diagnostic();
      return { name: module.relativeModuleId, ms: collectDuration + setupDuration + duration };
    })
    .sort((a, b) => b.ms - a.ms)
    .slice(0, 10)
    .map(({ name, ms }) => `  ${(ms / 1000).toFixed(1).padStart(6)}  ${name}`);
}

function skipLine(test: TestCase): string {
  const result = test.result();
  const note = result.state === 'skipped' && result.note ? result.note : 'skipped by the test file';
  return `  ${test.module.relativeModuleId} › ${test.fullName}: ${note}`;
}
