// The spec of the example of τ²-bench, in a folder that has what a user brings: the model's two files, and the data.
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { readSpecFile } from '../../src/spec/spec-input.js';

/** `folder`: an empty one. `tasks`: text of tasks.jsonl. */
export function tau2Spec(folder: string, tasks: string): Promise<RunSpec> {
  const model = join(folder, 'presets/models/Qwen3-8B');
  const example = join(folder, 'examples/tau2');
  for (const made of [model, join(example, 'data')]) mkdirSync(made, { recursive: true });
  cpSync('presets/tokenizers/small/tokenizer.json', join(model, 'tokenizer.json'));
  writeFileSync(join(model, 'tokenizer_config.json'), JSON.stringify({ chat_template: '{{ messages }}' }));
  cpSync('examples/tau2/tau2.yaml', join(example, 'tau2.yaml'));
  writeFileSync(join(example, 'data/tasks.jsonl'), tasks);
  return readSpecFile(join(example, 'tau2.yaml'));
}
