// Writes the tokenizer's corpus: everything that the quickstart's model reads or writes, one JSON string a line.
// `npm run build`, then `node tools/train-tokenizer/corpus.mjs OUTPUT.jsonl`.
import { writeFileSync } from 'node:fs';
import { systemPrompt } from '../../dist/episode/system-prompt.js';
import { toolObservation } from '../../dist/episode/observation.js';
import { generateDemonstrations, generateTasks } from '../../dist/examples/apps/generate.js';
import { appByName } from '../../dist/examples/apps/registry.js';

const [output] = process.argv.slice(2);
if (!output) throw new Error('usage: node tools/train-tokenizer/corpus.mjs OUTPUT.jsonl');

// The quickstart's apps. Another corpus would give another tokenizer, and so other runs.
const appNames = ['tracker', 'booking'];
const spec = { apps: appNames, seed: 7 };
const tasks = generateTasks({ ...spec, train_tasks: 4000, held_out_tasks: 0 });
const demonstrations = generateDemonstrations({
  ...spec,
  drill_demonstrations: 1000,
  teacher_demonstrations: 3000,
});
// The prompts are few among thousands of texts, but each rollout reads one. Repeat them so that their words get tokens of their own.
const prompts = appNames.flatMap((name) => {
  const { tools, variables } = appByName(name);
  const sampling = { system_prompt: 'short', tools_format: 'signatures' };
  return Array.from({ length: 200 }, () => systemPrompt({ env_variables: variables, tools, sampling }));
});
const turns = demonstrations.flatMap(({ messages }) =>
  messages.map(({ role, content }) => (role === 'tool' ? toolObservation(content) : content)),
);
const framing = Array.from({ length: 200 }, () => ['system\n', 'user\n', 'assistant\n']).flat();
const texts = [...prompts, ...tasks.map((task) => task.prompt), ...turns, ...framing];
writeFileSync(output, texts.map((text) => `${JSON.stringify(text)}\n`).join(''));
