// A service that answers as Fleet's does, its tasks, and episodes that play known calls there.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseSolutions, parseTasks, type Solution } from '../../../src/data/task-file.js';
import type { EnvironmentBackend } from '../../../src/environments/environment.js';
import { createFleetBackend } from '../../../src/environments/fleet/fleet-backend.js';
import { createSemaphore } from '../../../src/environments/semaphore.js';
import { loadChatTemplate } from '../../../src/episode/chat-template.js';
import { type EpisodePlay, playEpisode } from '../../../src/episode/episode-loop.js';
import { loadTokenizer } from '../../../src/episode/tokenizer.js';
import { type TurnJournal } from '../../../src/episode/turn-journal.js';
import type { Task } from '../../../src/spec/records/task.js';
import { hermes, sampling } from '../../episode/fixtures.js';
import { scriptedPolicy } from '../../episode/scripted-policy.js';

export const run = 'run-a';
export const longSampling = { ...sampling, max_turns: 50, max_input_length: 1e6, max_sequence_length: 1e6 };

export interface FleetTasks {
  tasks: readonly Task[];
  solutions: ReadonlyMap<string, Solution>;
  wrong: ReadonlyMap<string, Solution>;
  /** Of verifiers, by sha256. */
  codes: ReadonlyMap<string, string>;
}

/** Reads the folder that the service has written. */
export function readFleetTasks(folder: string): FleetTasks {
  const read = (name: string): string => readFileSync(join(folder, name), 'utf8');
  const played = (name: string) =>
    new Map(parseSolutions(read(name), name).map((one) => [one.task_key, one] as const));
  const codes = new Map<string, string>();
  const tasks = parseTasks(read('tasks.json'), 'tasks.json', (sha256, code) => codes.set(sha256, code));
  return { tasks, solutions: played('solutions.jsonl'), wrong: played('wrong.jsonl'), codes };
}

interface BackendOptions {
  url: string;
  key: string;
  codes: ReadonlyMap<string, string>;
  owner: string;
  folder: string;
  places?: number;
  callTimeoutMs?: number;
  region?: string;
  ttlSeconds?: number;
  log?: (message: string) => void;
}

export function fleetBackend(options: BackendOptions): EnvironmentBackend {
  const { url, key, codes, owner, folder, places = 8, callTimeoutMs = 10_000, region } = options;
  const { ttlSeconds = 600, log = () => undefined } = options;
  return createFleetBackend({
    ...{ url, apiKey: key, ttlSeconds, callTimeoutMs, places: createSemaphore(places) },
    ...(region === undefined ? {} : { region }),
    owner: { name: owner, folder: join(folder, owner), log },
    verifierCode: (sha256) => Promise.resolve(codes.get(sha256) ?? ''),
  });
}

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);

/** Plays an episode whose policy makes these calls and then gives this answer. */
export function playCalls(
  backend: EnvironmentBackend,
  task: Task,
  { calls, final_answer }: Pick<Solution, 'calls' | 'final_answer'>,
  { slot, journal, maxWaitMs = 60_000 }: { slot: number; journal?: TurnJournal; maxWaitMs?: number },
): Promise<EpisodePlay> {
  const turns = calls.map((call) => `<tool_call>${JSON.stringify(call)}</tool_call>`);
  return playEpisode(
    {
      ...{ backend, tokenizer, template, ...hermes },
      engine: scriptedPolicy(tokenizer, [...turns, `${final_answer} <done>`]),
    },
    {
      ...{
        task,
        sampling: longSampling,
        state: 'a'.repeat(64),
        policyStep: 0,
        episodeSeed: 1,
        run,
        maxWaitMs,
      },
      key: { seed: 1, domain: 'train', step: 1, slot, sample: 0 },
      episodeId: `e/${slot}`,
      ...(journal ? { journal } : {}),
    },
    new AbortController().signal,
  );
}
