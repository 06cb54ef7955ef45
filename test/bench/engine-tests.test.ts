import { describe, expect, it } from 'vitest';
import { engineFigures } from '../../bench/engine-figures.js';
import { readTest } from '../../bench/engine-tests.js';
import { evaluate, type MeasuredPart } from '../../bench/figure.js';

const figure = (name: string, part: string, values: Record<string, number>) => {
  const definition = engineFigures.find((one) => one.name === name);
  if (!definition) throw new Error(`no figure ${name}`);
  const measured: MeasuredPart = {
    ...{ date: '2026-01-02T00:00:00.000Z', commit: 'abc1234', values, notes: [], stolen: 0 },
    ...{ current: true, fresh: true },
  };
  return evaluate(definition, new Map([[part, measured]]));
};

describe('a test of the engine', () => {
  it('ends with the figures that it found', () => {
    const output = 'ok      one\nok      two\n{"logits": 1.5e-06, "gradients": 4e-06}\n';
    expect(readTest('parity', 0, output, ['logits', 'gradients'])).toEqual({
      ...{ failed: 0, logits: 1.5e-6, gradients: 4e-6 },
    });
  });

  it('gives them too where it failed over them, and counts what failed', () => {
    const output = 'FAILED  one: value 3\nok      two\n{"compared": 12, "differing": 1}\n';
    const values = readTest('exactness', 1, output, ['compared', 'differing']);
    expect(values).toEqual({ failed: 1, compared: 12, differing: 1 });
    expect(figure('engine_logprob_mismatches', 'engine/exactness', values)).toMatchObject({ holds: false });
  });

  it('that ended early, or prints something else, has none', () => {
    expect(() => readTest('memory', 'SIGSEGV', 'ok      one\n', ['deviation'])).toThrow(
      'memory ended with SIGSEGV and no figures',
    );
    expect(() => readTest('memory', 139, '{"deviation": 0.01}\n', ['deviation'])).toThrow('ended with 139');
    expect(() => readTest('memory', 0, '{"other": 1}\n', ['deviation'])).toThrow('printed no deviation');
  });
});

it('the bars of exactness are those of the engine’s promise', () => {
  expect(figure('engine_logits_vs_transformers', 'engine/parity', { logits: 1e-5 }).holds).toBe(true);
  expect(figure('engine_logits_vs_transformers', 'engine/parity', { logits: 1.01e-5 }).holds).toBe(false);
  expect(figure('engine_gradients_vs_torch', 'engine/parity', { gradients: 1.01e-4 }).holds).toBe(false);
  expect(figure('engine_memory_vs_plan', 'engine/memory', { deviation: 0.051 }).holds).toBe(false);
  expect(figure('engine_logprob_mismatches', 'engine/exactness', { differing: 0 })).toMatchObject({
    ...{ value: 0, bar: '= 0', holds: true },
  });
});
