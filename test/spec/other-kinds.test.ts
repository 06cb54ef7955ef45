// A file of another kind is refused in one line that names the command which takes it.
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { expect, test } from 'vitest';
import { parseDatasetSpec } from '../../src/spec/dataset-spec.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { parseSweepSpec } from '../../src/sweeps/sweep-input.js';

const run: unknown = parse(readFileSync('presets/quickstart.yaml', 'utf8'));
const dataset = { name: 'crm', version: 'v1', tasks: 'tasks.jsonl', split: { held_out: 0.1 } };
const sweep = { name: 'weekly', checkpoints: [{ run: 'a' }], suites: [{ name: 'final' }] };

test.each([
  [
    'a run spec',
    run,
    parseDatasetSpec,
    /^the dataset spec has one problem:\n {2}this is a run spec; `longhaul train` takes it$/,
  ],
  [
    'a run spec',
    run,
    parseSweepSpec,
    /^the sweep has one problem:\n {2}this is a run spec; `longhaul train` takes it$/,
  ],
  [
    'a dataset spec',
    dataset,
    parseRunSpec,
    /one problem:\n {2}this is a dataset spec; `longhaul data prepare` takes it$/,
  ],
  [
    'a sweep',
    sweep,
    parseRunSpec,
    /one problem:\n {2}this is a sweep; `longhaul sweeps run` and `sweeps apply` take it$/,
  ],
])('%s', (_, input, parseSpec, message) => {
  expect(() => parseSpec(input)).toThrow(message);
});

test('a mistyped key of the right kind keeps its own message, and a list has no kind', () => {
  expect(() => parseDatasetSpec({ ...dataset, trainer: {} })).toThrow(/trainer/);
  expect(() => parseDatasetSpec({ ...dataset, trainer: {} })).not.toThrow(/run spec/);
  expect(() => parseRunSpec([])).not.toThrow(/this is a/);
});
