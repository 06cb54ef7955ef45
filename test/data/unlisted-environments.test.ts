// Rows of other trainers name their environment in `data_source`, which is often the name of a data set and no possible env_key.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { refuseBadFiles } from '../../src/data/dataset-validation.js';
import { fixOfUnlisted } from '../../src/spec/environments/environment-problems.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { scratchFolder } from '../support/scratch-folder.js';

const folder = scratchFolder();

function checked(own: Record<string, unknown>, data?: object): Promise<unknown> {
  const tasks = join(folder, 'tasks.jsonl');
  const rows = ['train', 'test'].map((split, index) => ({
    ...{ data_source: 'openai/gsm8k', prompt: [{ role: 'user', content: `What is ${index} + 1?` }] },
    ...{ reward_model: { style: 'rule', ground_truth: '2' }, extra_info: { split, index }, ...own },
  }));
  writeFileSync(tasks, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const spec = parseRunSpec({
    name: 'trial',
    model: {
      ...{ name: 'm', tokenizer: '/models/tokenizer.json', chat_template: '/models/chat_template.jinja' },
      architecture: {
        ...{ vocab_size: 64, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 },
        ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 32 },
      },
    },
    data: data ?? { eval_tasks: 1, final_eval_tasks: 1, tasks },
    environments: [{ env_key: 'gsm8k', url: 'http://127.0.0.1:8001' }],
    trainer: { max_training_steps: 10 },
  });
  return refuseBadFiles(spec);
}

test('a data_source that is no possible env_key is not to be listed: the rows get an env_key, as the error says', async () => {
  const error = await checked({}).then(() => '', String);
  expect(error).toMatch(
    /the environment "openai\/gsm8k", which is not listed[^]*give each row an env_key, which is used instead/,
  );
  expect(error).not.toContain('add an entry');
  expect(await checked({ env_key: 'gsm8k' }).then(() => 'accepted', String)).toBe('accepted');
});

test.each(['a b', 'x'.repeat(65), '.hidden', 'math:easy', ''])('%j cannot be listed', (envKey) => {
  expect(fixOfUnlisted(envKey)).toMatch(/^an env_key has 1 to 64 letters/);
});

test.each(['mail', 'gsm8k_v1.0', 'x'.repeat(64)])('%j can', (envKey) => {
  expect(fixOfUnlisted(envKey)).toBe(`add an entry with env_key: ${envKey}`);
});

test('a server of tasks that does not answer: the key, and how to start the example’s', async () => {
  const data = { eval_tasks: 1, final_eval_tasks: 1, tasks: 'openenv+http://127.0.0.1:9/tracker' };
  const error = await checked({}, data).then(() => '', String);
  expect(error).toContain('  data.tasks: ');
  expect(error).toMatch(
    /does not answer: [^]*; start that server; the example's: longhaul up --environments '/,
  );
});
