// Writes the tokenizer's corpus: everything that the quickstart's model reads or says, one JSON string a line.
// Run through `vite-node` or compile first: `corpus.ts OUTPUT.jsonl`.
import { writeFileSync } from 'node:fs';
import { systemPrompt } from '../../src/episode/system-prompt.js';
import { toolObservation } from '../../src/episode/observation.js';
import { generateDemonstrations, generateTasks } from '../../src/environments/apps/generate.js';
import { appByName } from '../../src/environments/apps/registry.js';

export function corpusTexts(apps: readonly string[]): string[] {
  const tasks = generateTasks({ apps: [...apps], seed: 7, train_tasks: 4000, held_out_tasks: 0 });
  const demonstrations = generateDemonstrations({
    apps: [...apps],
    seed: 7,
    drill_demonstrations: 1000,
    teacher_demonstrations: 3000,
  });
  // A prompt is one text among thousands, but each rollout reads it: its words are worth pieces of their own.
  const prompts = apps.flatMap((name) => {
    const { tools, variables } = appByName(name);
    const sampling = { system_prompt: 'short', tools_format: 'signatures' } as const;
    return Array.from({ length: 200 }, () => systemPrompt({ env_variables: variables, tools, sampling }));
  });
  const turns = demonstrations.flatMap(({ messages }) =>
    messages.map(({ role, content }) => (role === 'tool' ? toolObservation(content) : content)),
  );
  const framing = Array.from({ length: 200 }, () => ['system\n', 'user\n', 'assistant\n']).flat();
  return [...prompts, ...tasks.map((task) => task.prompt), ...turns, ...framing];
}

export function writeCorpus(path: string, apps: readonly string[]): void {
  writeFileSync(
    path,
    corpusTexts(apps)
      .map((text) => `${JSON.stringify(text)}\n`)
      .join(''),
  );
}
