// R25: which episode is charged when the environment server dies. The real server, with faults injected at certain calls of certain
// episodes.
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EnvironmentBackend } from '../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import { type FaultSource, resetTurn } from '../../examples/apps/server/app-session.js';
import type { EnvironmentServer } from '../../examples/apps/server/environment-server.js';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import { type EpisodePlay, playEpisode } from '../../src/episode/episode-loop.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import { counterTask, startCounterServer, token } from '../environments/stand-in.js';
import { hermes, sampling } from './fixtures.js';
import { scriptedPolicy } from './scripted-policy.js';

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);
const increment = '<tool_call>{"name":"increment","arguments":{}}</tool_call>';
const turns = [increment, increment, '<done>'];
const suspect = 3;
const company = [0, 1, 2, 3, 4, 5];
const passed = { status: 'graded', value: 1 };

/** The number of open episodes at each of the suspect's calls, by turn. */
let companyAt: Map<number, number[]>;
let open: number;
let faultAt: (turn: number, beside: number) => boolean;
let server: EnvironmentServer;
let backend: EnvironmentBackend;

const faults: FaultSource = {
  toolError: () => undefined,
  infrastructure({ seed, turn }) {
    if (seed !== suspect) return undefined;
    companyAt.set(turn, [...(companyAt.get(turn) ?? []), open]);
    return faultAt(turn, open) ? 'drop' : undefined;
  },
};

beforeEach(async () => {
  companyAt = new Map();
  open = 0;
  server = await startCounterServer({ faults, faultRate: 1 });
  backend = createOpenEnvBackend({ url: server.url, gradingToken: token, maxSessions: 16 });
});
afterEach(async () => {
  await backend.close();
  await server.close();
});

/** The backend with a count of open episodes; calls `asked` for each request to open one. */
const counted = (asked: () => void): EnvironmentBackend => ({
  ...backend,
  async open(...args) {
    asked();
    const environment = await backend.open(...args);
    open += 1;
    return {
      tools: environment.tools,
      callTool: (call, options) => environment.callTool(call, options),
      grade: (options) => environment.grade(options),
      close: () => {
        open -= 1;
        return environment.close();
      },
    };
  },
});

/** A play that wrongly starts beside other episodes would start within this time. */
const graceMs = 100;

/**
 * Plays all episodes at the same time. The others stay in their second turn until the suspect asks to open its third play, or has ended.
 */
async function playAll(othersWaitFor: 'third playing' | 'end' = 'third playing'): Promise<EpisodePlay[]> {
  let goOn = (): void => undefined;
  const wait = new Promise<void>((resolve) => (goOn = resolve));
  let playings = 0;
  const asked = (): void => {
    if (++playings === 3 && othersWaitFor === 'third playing') setTimeout(goOn, graceMs);
  };
  return Promise.all(
    company.map(async (seed) => {
      const policy = scriptedPolicy(tokenizer, turns);
      const generate: typeof policy.generate = async (request, signal) => {
        if (seed !== suspect && policy.requests.length === 1) await wait;
        return policy.generate(request, signal);
      };
      const play = await playEpisode(
        {
          ...{ engine: { generate }, tokenizer, template, ...hermes },
          backend: counted(seed === suspect ? asked : () => undefined),
        },
        {
          ...{ task: counterTask(2), sampling, state: 'a'.repeat(64), policyStep: 0 },
          key: { seed: 1, domain: 'train', step: 1, slot: seed, sample: 0 },
          ...{ episodeSeed: seed, episodeId: `e/${seed}`, maxWaitMs: 5000 },
        },
        AbortSignal.timeout(15_000),
      );
      if (seed === suspect) goOn();
      return play;
    }),
  );
}

const others = (plays: readonly EpisodePlay[]) =>
  plays.filter((_, seed) => seed !== suspect).map(({ outcome, failures }) => ({ outcome, failures }));
const untouched = company.slice(1).map(() => ({ outcome: passed, failures: {} }));

describe('an episode during whose call the server dies', () => {
  it('is played alone after two deaths under one call; the third death there, and every later one, is charged', async () => {
    faultAt = (turn) => turn === 1;
    const plays = await playAll();
    expect(plays[suspect]).toMatchObject({
      outcome: { status: 'unknown', reason: 'socket_lost', failures: 3 },
      failures: { socket_lost: 5 },
    });
    expect(others(plays)).toEqual(untouched);
    const [first, second, ...alone] = companyAt.get(1) ?? [];
    expect([first, second]).toEqual([company.length, company.length]);
    expect(alone).toEqual([1, 1, 1]);
  });

  it('is charged nothing if the server dies only because of other episodes: alone, it continues to its grade', async () => {
    faultAt = (turn, beside) => turn === 1 && beside > 1;
    const plays = await playAll();
    expect(plays[suspect]).toMatchObject({ outcome: passed, failures: { socket_lost: 2 } });
    expect(others(plays)).toEqual(untouched);
  });

  it('is charged as well if the server dies while it opens: the episode ends, but the run does not stop', async () => {
    faultAt = (turn) => turn === resetTurn;
    const plays = await playAll();
    expect(plays[suspect]).toMatchObject({
      outcome: { status: 'unknown', reason: 'socket_lost', failures: 3 },
    });
    expect(others(plays)).toEqual(untouched);
    // A reset that is lost on an idle socket is retried on the next one, so there are more resets than plays.
    expect(new Set(companyAt.get(resetTurn)?.slice(2))).toEqual(new Set([0]));
  });

  it('is not suspected if the server dies at two different calls: neither death is charged, and the episode keeps playing beside others', async () => {
    faultAt = (turn) => turn >= 0 && companyAt.get(turn)?.length === 1;
    const plays = await playAll('end');
    expect(plays[suspect]).toMatchObject({ outcome: passed, failures: { socket_lost: 2 } });
    expect(others(plays)).toEqual(untouched);
    expect(companyAt.get(1)).toEqual([company.length, company.length]);
  });
});
