import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { refuseBadFiles } from '../../src/data/dataset-validation.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-share-'));
afterAll(() => rmSync(folder, { recursive: true }));

const specOf = (data: Record<string, unknown>, env_keys: string[], curriculum: Record<string, unknown>) =>
  parseRunSpec({
    name: 'trial',
    model: {
      ...{ name: 'm', tokenizer: '/models/tokenizer.json', chat_template: '/models/chat_template.jinja' },
      architecture: {
        ...{ vocab_size: 64, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 },
        ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 32 },
      },
    },
    data: { eval_tasks: 1, final_eval_tasks: 1, ...data },
    environments: env_keys.map((env_key) => ({ env_key })),
    trainer: { max_training_steps: 10, curriculum },
  });

/** Three training tasks of different templates and environments, and a held-out one of a fourth. */
function taskFile(): string {
  const file = join(folder, 'tasks.jsonl');
  const rows = ['a', 'b', 'c', 'd'].map((name) => ({
    ...{ task_key: name, env_key: name, template: `t-${name}`, prompt: 'Do it.' },
    split: name === 'd' ? 'held_out' : 'train',
  }));
  writeFileSync(file, rows.map((row) => JSON.stringify(row)).join('\n'));
  return file;
}

describe('curriculum.max_share', () => {
  test.each([
    ['template', 0.1, /max_share: 0\.1 is too little for 3 templates: .*raise it to 0\.334 or more/],
    ['env', 0.3, /0\.3 is too little for 3 environments: .*raise it to 0\.334 or more/],
    ['template', 0.33, /0\.33 is too little for 3 templates/],
    ['template', 1 / 3, null],
    ['env', 0.34, null],
  ])('by %s of %d is refused where no step could be filled', async (by, max_share, refused) => {
    const checked = refuseBadFiles(specOf({ tasks: taskFile() }, ['a', 'b', 'c', 'd'], { by, max_share }));
    if (refused) await expect(checked).rejects.toThrow(refused);
    else await expect(checked).resolves.toHaveProperty('tasks');
  });
});
