// Plays episodes with journals until it is killed, as a node worker does. Arguments: url, grading token, number of episodes, folder of the
// journals (the next process gets the same folder). Prints a line when every episode is in the middle of a turn.
import { readFileSync } from 'node:fs';
import { generateTasks } from '../../examples/apps/generate.js';
import { appNames } from '../../examples/apps/registry.js';
import { oracle } from '../../examples/apps/task-key.js';
import type { EnvironmentBackend } from '../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import { playEpisode } from '../../src/episode/episode-loop.js';
import { JournalFolder } from '../../src/episode/journal-folder.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import type { Task } from '../../src/spec/records/task.js';
import { hermes, sampling } from '../episode/fixtures.js';

const [, , url = '', gradingToken = '', count = '1', folder = ''] = process.argv;
const maxSessions = Number(count);
const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);
const limits = { ...sampling, max_turns: 50, max_input_length: 1e6, max_sequence_length: 1e6 };
const plain = createOpenEnvBackend({ url, gradingToken, maxSessions });
let attached = 0;
const backend: EnvironmentBackend = {
  ...plain,
  attach: async (...args) => {
    const environment = await plain.attach!(...args);
    if (environment) attached += 1;
    return environment;
  },
};

const below = await new JournalFolder(folder, (message) => process.stderr.write(`${message}\n`)).below('e/');
const begun = new Set<number>();
let told = false;

async function play(task: Task, slot: number): Promise<void> {
  const random = { seed: 1, domain: 'train' as const, step: 1, slot, sample: 0 };
  const [episode, state, seed] = [`e/${slot}`, 'a'.repeat(64), slot];
  const journal = await below.open({
    ...{ schema: 'longhaul.journal/1', episode, plan: 'p', state, sampling: 's', seed, random },
  });
  const tokens = tokenizer.encode(`<tool_call>${JSON.stringify(oracle(task.task_key)[0])}</tool_call>`);
  await playEpisode(
    {
      ...{ backend, tokenizer, template, ...hermes },
      engine: {
        generate: () => {
          // When an episode begins its second turn here, the tool call of its first turn has been answered.
          if (!begun.has(slot)) begun.add(slot);
          else if (begun.size === maxSessions && !told) {
            told = true;
            process.stdout.write(`${attached}\n`);
          }
          return Promise.resolve({ tokens: [...tokens], logprobs: tokens.map(() => -1), finish: 'stop' });
        },
      },
    },
    {
      ...{ task, sampling: limits, key: random, state, policyStep: 0, episodeSeed: seed },
      ...{ episodeId: episode, maxWaitMs: 60_000, journal },
    },
    new AbortController().signal,
  );
  await journal.remove();
}

const tasks = generateTasks({ apps: [...appNames], seed: 3, train_tasks: maxSessions, held_out_tasks: 0 });
await Promise.all(
  tasks.map(async (task, slot) => {
    for (;;) await play(task, slot);
  }),
);
