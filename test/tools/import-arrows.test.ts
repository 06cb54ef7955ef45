import { ESLint } from 'eslint';
import { beforeAll, describe, expect, test } from 'vitest';

const eslint = new ESLint();

/** Rules that a text breaks as the content of `file`. The file must exist, because typed rules look it up. */
async function complaints(file: string, text: string): Promise<string[]> {
  const [result] = await eslint.lintText(text, { filePath: file });
  return (result?.messages ?? []).map(({ ruleId, message }) => ruleId ?? `broken: ${message}`);
}

// The first linted text waits until the types of the whole project are loaded: minutes on a busy machine.
beforeAll(async () => {
  await complaints('src/rl/advantages.ts', '');
});

describe('import arrows', () => {
  test.each([
    ['src/rl/advantages.ts', `import { openStore } from '../store/open-store.js';\nvoid openStore;\n`],
    [
      'src/store/record-keys.ts',
      `import { runSpecSchema } from '../engine/policy-engine.js';\nvoid runSpecSchema;\n`,
    ],
    [
      'src/spec/records/plan.ts',
      `import type { ObjectStore } from '../../store/objects/object-store.js';\nexport type A = ObjectStore;\n`,
    ],
    [
      'src/workflows/policies.ts',
      `import { readSpecFile } from '../spec/spec-input.js';\nvoid readSpecFile;\n`,
    ],
    [
      'src/workflows/policies.ts',
      `import { fatalFailures } from '../activities/contracts.js';\nvoid fatalFailures;\n`,
    ],
    ['src/workflows/policies.ts', `export { fatalFailures } from '../activities/contracts.js';\n`],
    [
      'src/episode/observation.ts',
      `import { createNativeEngine } from '../engine/native/native-engine.js';\nvoid createNativeEngine;\n`,
    ],
    [
      'src/cli/stack/env-command.ts',
      `import { appNames } from '../../../examples/apps/registry.js';\nvoid appNames;\n`,
    ],
    ['src/report/charts/chart.ts', `export const cli = () => import('../../cli/program.js');\n`],
  ])('%s may not import: %s', async (file, text) => {
    expect(await complaints(file, text)).toContain('longhaul/import-arrows');
  });

  test.each([
    [
      'src/workflows/policies.ts',
      `import type { RunOutline } from '../activities/contracts.js';\nexport type A = RunOutline;\n`,
    ],
    [
      'src/workflows/policies.ts',
      `import { sameNumerics } from '../spec/records/numerics.js';\nvoid sameNumerics;\n`,
    ],
    [
      'src/activities/attempt/scope.ts',
      `import { openStore } from '../../store/open-store.js';\nvoid openStore;\n`,
    ],
    [
      'src/episode/observation.ts',
      `import type { PolicyEngine } from '../engine/policy-engine.js';\nexport type A = PolicyEngine;\n`,
    ],
    [
      'src/rl/advantages.ts',
      `import type { Outcome } from '../spec/records.js';\nexport type A = Outcome;\n`,
    ],
  ])('%s may import: %s', async (file, text) => {
    expect(await complaints(file, text)).not.toContain('longhaul/import-arrows');
  });
});

describe('workflow code', () => {
  test.each([
    [`import { readFileSync } from 'node:fs';\nvoid readFileSync;\n`, 'no-restricted-imports'],
    [`import { z } from 'zod';\nvoid z;\n`, 'no-restricted-imports'],
    [`export const id = process.pid;\n`, 'no-restricted-globals'],
    [`console.log('x');\n`, 'no-restricted-globals'],
    [`export const x = Math.random();\n`, 'no-restricted-properties'],
  ])('may not contain %s', async (text, rule) => {
    expect(await complaints('src/workflows/policies.ts', text)).toContain(rule);
  });
});

describe('everywhere', () => {
  test.each([
    [`export default 1;\n`, 'no-restricted-syntax'],
    [`export const x: any = 1;\n`, '@typescript-eslint/no-explicit-any'],
    [`async function f(): Promise<void> {}\nf();\n`, '@typescript-eslint/no-floating-promises'],
  ])('%s is refused', async (text, rule) => {
    expect(await complaints('src/rl/advantages.ts', text)).toContain(rule);
  });
});
