// An attempt dies, and the next one continues its episode from the journal. The record must be the same as without the death.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EnvironmentBackend, OpenOptions } from '../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import type { FaultSource, ServedApp } from '../../examples/apps/server/app-session.js';
import type {
  EnvironmentServer,
  EnvironmentServerOptions,
} from '../../examples/apps/server/environment-server.js';
import { loadChatTemplate } from '../../src/episode/chat-template.js';
import { type EpisodePlay, playEpisode } from '../../src/episode/episode-loop.js';
import { JournalFolder } from '../../src/episode/journal-folder.js';
import { loadTokenizer } from '../../src/episode/tokenizer.js';
import type { JournalHeader, TurnJournal } from '../../src/episode/turn-journal.js';
import type { SamplingPlan } from '../../src/spec/records/parts.js';
import {
  counter,
  counterTask,
  noFaults,
  startCounterServer,
  token,
  worlds,
} from '../environments/stand-in.js';
import { startTcpProxy, type TcpProxy } from '../support/servers/tcp-proxy.js';
import { until } from '../support/until.js';
import { hermes, sampling } from './fixtures.js';
import { scriptedPolicy } from './scripted-policy.js';

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);
const increment = '<tool_call>{"name":"increment","arguments":{}}</tool_call>';
/** A call, a turn without a call, a malformed call, and a second call. */
const turns = [increment, 'Let me think.<|im_end|>', '<tool_call>{"name":</tool_call>', increment, '<done>'];
const seed = 7;
const key = { seed: 1, domain: 'train' as const, step: 1, slot: 0, sample: 0 };
const header: JournalHeader = {
  schema: 'longhaul.journal/1',
  ...{ episode: 'e', plan: 'p', state: 'a'.repeat(64), sampling: 's', seed, random: key },
};

/**
 * Where an attempt dies. `before` a call: the call is in the journal but not sent. `after` a call: the server has executed it, but the
 * reply was not seen.
 */
type Death =
  | { in: 'open'; index: number }
  | { in: 'turn'; index: number }
  | { in: 'call'; index: number; when: 'before' | 'after' }
  | { in: 'grade'; when: 'before' | 'after' };

let folder: string;
/** Calls that the server executed, by turn; -1 for a reset, -2 for a grade. */
let carriedOut: number[];
let faultAt: FaultSource['infrastructure'];
let server: EnvironmentServer;
let proxy: TcpProxy;
const cleanup: (() => Promise<unknown>)[] = [];
const faults: FaultSource = {
  ...noFaults,
  infrastructure: (asked) => (carriedOut.push(asked.turn), faultAt(asked)),
};
const serve = (options: Partial<EnvironmentServerOptions> = {}) =>
  startCounterServer({ faults, faultRate: 0.5, ...options });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'longhaul-resumed-'));
  carriedOut = [];
  faultAt = () => undefined;
  server = await serve();
  proxy = await startTcpProxy(new URL(server.url).host);
});
afterEach(async () => {
  for (const clean of cleanup.splice(0).reverse()) await clean();
  await proxy.stop();
  await server.close();
  rmSync(folder, { recursive: true });
});

const restartServer = async (options: Partial<EnvironmentServerOptions> = {}): Promise<void> => {
  await server.close();
  server = await serve({ port: Number(new URL(server.url).port), ...options });
};

interface Attempt {
  play: EpisodePlay | null;
  /** Number of turns requested from the engine. */
  sampled: number;
  looks: number;
  /** Options of each request for a fresh world. */
  opens: OpenOptions[];
}

interface Circumstances {
  limits?: Partial<SamplingPlan>;
  prompt?: string;
  says?: string[];
}

/**
 * Plays one attempt as a separate process would: with its own sockets, view of the journals, and engine. `play` is null if the attempt
 * dies.
 */
async function attempt(
  death: Death | null,
  { limits, prompt, says = turns }: Circumstances = {},
): Promise<Attempt> {
  const backend = createOpenEnvBackend({
    ...{ url: proxy.url, gradingToken: token, maxSessions: 4, callTimeoutMs: 5000 },
  });
  const below = await new JournalFolder(join(folder, 'journal'), () => undefined).below('runs/r/');
  const file = await below.open(header);
  cleanup.push(() => file.close());
  let begun = Promise.resolve();
  const journal: TurnJournal = {
    past: file.past,
    note: (entry) => file.note(entry),
    write: () => (begun = file.write()),
  };
  const policy = scriptedPolicy(tokenizer, says);
  const abort = new AbortController();
  let die = (): void => undefined;
  const dead = new Promise<void>((resolve) => (die = resolve));
  // A turn, a call or a world takes much longer than a write, so writes that began before the death are finished. Later ones never happen.
  const forEver = async (): Promise<never> => {
    await begun;
    die();
    return new Promise((_, reject) =>
      abort.signal.addEventListener('abort', () => reject(abort.signal.reason as Error)),
    );
  };
  const engine: typeof policy = {
    requests: policy.requests,
    generate: (request, signal) =>
      death?.in === 'turn' && policy.requests.length === death.index
        ? forEver()
        : policy.generate(request, signal),
  };
  async function dying<T>(fatal: boolean, when: 'before' | 'after', call: () => Promise<T>): Promise<T> {
    if (!fatal) return call();
    if (when === 'after') await call();
    return forEver();
  }
  const opens: OpenOptions[] = [];
  const environments: EnvironmentBackend = {
    ...backend,
    async open(...args) {
      opens.push(args[1]);
      if (death?.in === 'open' && opens.length > death.index) return forEver();
      const environment = await backend.open(...args);
      return {
        ...environment,
        callTool: (call, options) =>
          death?.in === 'call'
            ? dying(death.index === options.turn, death.when, () => environment.callTool(call, options))
            : environment.callTool(call, options),
        grade: (options) =>
          death?.in === 'grade'
            ? dying(true, death.when, () => environment.grade(options))
            : environment.grade(options),
      };
    },
  };
  let looks = 0;
  const playing = playEpisode(
    { engine, backend: environments, tokenizer, template, ...hermes },
    {
      task: { ...counterTask(2), ...(prompt === undefined ? {} : { prompt }) },
      ...{ sampling: { ...sampling, ...limits }, state: header.state, policyStep: 0 },
      ...{ key, episodeSeed: seed, episodeId: 'e', maxWaitMs: 5000, journal },
      beforeSampling: () => Promise.resolve(void (looks += 1)),
    },
    abort.signal,
  );
  const ended = await Promise.race([playing, dead.then(() => null)]);
  if (ended) await file.remove();
  else {
    // Does what the kernel does for a killed process: no close frame is sent, and no further byte is written to the file.
    proxy.mode = 'refuse';
    abort.abort(new Error('killed'));
    await playing.catch(() => undefined);
    await backend.close();
    await until(async () => (await sessions()).attached === 0, 'the server to see the death');
    proxy.mode = 'pass';
  }
  if (ended) await backend.close();
  return { play: ended, sampled: policy.requests.length, looks, opens };
}

async function sessions(): Promise<{ attached: number; sessions: number }> {
  return (await (await fetch(`${server.url}/x/sessions`)).json()) as { attached: number; sessions: number };
}

const deaths: [string, Death][] = [
  ...[0, 1, 2, 3, 4].map((index): [string, Death] => [
    `while turn ${index} is sampled`,
    { in: 'turn', index },
  ]),
  ...[0, 3].flatMap((index) =>
    (['before', 'after'] as const).map((when): [string, Death] => [
      `${when} the call of turn ${index}`,
      { in: 'call', index, when },
    ]),
  ),
  ['before the grade', { in: 'grade', when: 'before' }],
  ['after the grade', { in: 'grade', when: 'after' }],
];
/** Number of turns that had been sampled at the death. */
const finished = (death: Death): number => {
  if (death.in === 'call') return death.index + 1;
  return death.in === 'turn' ? death.index : death.in === 'open' ? 0 : turns.length;
};

describe('an episode whose attempt dies', () => {
  let undisturbed: EpisodePlay;
  beforeEach(async () => {
    undisturbed = (await attempt(null)).play!;
    expect(undisturbed).toMatchObject({ outcome: { status: 'graded', value: 1 }, failures: {} });
    carriedOut = [];
  });

  it.each(deaths)('%s continues in the same world, and repeats no turn and no call', async (_, death) => {
    const opened = worlds.opened;
    expect((await attempt(death)).play).toBeNull();
    const again = await attempt(null);
    expect(again.play).toEqual(undisturbed);
    expect(again.sampled).toBe(turns.length - finished(death));
    expect(again.looks).toBe(1);
    expect(carriedOut.filter((turn) => turn !== -1)).toEqual([0, 3, -2]);
    // A client's first world takes two resets, because the client asks for the tools in between.
    expect(worlds.opened - opened).toBe(2);
    await until(async () => (await sessions()).sessions === 0, 'its session to end');
  });

  it('after the grade repeats no call, even if the last turn made one', async () => {
    const ending = { limits: { max_turns: 4 } };
    const ended = await attempt(null, ending);
    expect(ended.play).toMatchObject({ outcome: { value: 1 }, stop_reason: 'max_turns', failures: {} });
    carriedOut = [];
    await attempt({ in: 'grade', when: 'after' }, ending);
    const again = await attempt(null, ending);
    expect(again.play).toEqual(ended.play);
    expect(carriedOut.filter((turn) => turn !== -1)).toEqual([0, 3, -2]);
  });

  it.each<[string, Death]>([
    ['was not seen', { in: 'call', index: 0, when: 'after' }],
    ['is known', { in: 'turn', index: 2 }],
  ])(
    'leaves the old world for a fresh one if the next attempt makes other calls and the last answer %s',
    async (_, death) => {
      await attempt(death);
      // The next attempt has another prompt, as another version might: no sampled turn fits its transcripts.
      const other = {
        prompt: 'Count.',
        says: ['<tool_call>{"name":"refuse","arguments":{}}</tool_call>', ...turns.slice(1)],
      };
      const again = await attempt(null, other);
      expect(again.opens).toHaveLength(1);
      expect(again.play).toMatchObject({ outcome: { value: 0 }, metrics: { tool_errors: 2 }, failures: {} });
      expect(again.play).toEqual((await attempt(null, other)).play);
    },
  );

  it.each(deaths)(
    '%s, together with its server, makes its calls again but samples no turn again',
    async (_, death) => {
      await attempt(death);
      await restartServer();
      const again = await attempt(null);
      expect(again.play).toEqual(undisturbed);
      expect(again.sampled).toBe(turns.length - finished(death));
    },
  );

  it('once in every turn loses only the unfinished turns', async () => {
    let sampled = 0;
    for (let index = 0; index < turns.length; index++) {
      // Each attempt finishes one turn.
      const { play, sampled: more } = await attempt({ in: 'turn', index: index === 0 ? 0 : 1 });
      expect(play).toBeNull();
      sampled += more;
    }
    const last = await attempt(null);
    expect(last.play).toEqual(undisturbed);
    expect(sampled + last.sampled).toBe(turns.length);
  });

  it.each<[string, (bytes: Buffer) => Buffer]>([
    ['gone', () => Buffer.alloc(0)],
    ['damaged in its first line', (bytes) => (bytes.writeUInt8(bytes[20]! ^ 1, 20), bytes)],
    ['cut off after a session', (bytes) => bytes.subarray(0, nth(bytes, '\n', 2))],
  ])('and whose journal is %s is played from the start, with the same record', async (_, spoil) => {
    await attempt({ in: 'turn', index: 3 });
    const path = journalFile();
    writeFileSync(path, spoil(readFileSync(path)));
    const again = await attempt(null);
    expect(again.play).toEqual(undisturbed);
    expect(again.sampled).toBe(turns.length);
  });

  it('and whose new world gives other answers continues as if it had been played in the new world from the start', async () => {
    await attempt({ in: 'turn', index: 4 });
    // An app that counts from 100.
    const other: ServedApp = {
      ...counter,
      open(task, options) {
        const world = counter.open(task, options);
        const call: typeof world.call = (name, args) => {
          const { text, isError } = world.call(name, args);
          return { text: /^\d+$/.test(text) ? String(100 + Number(text)) : text, isError };
        };
        return { ...world, call };
      },
    };
    await restartServer({ apps: [other] });
    const again = await attempt(null);
    // Only the first turn is reused, because it came before the first answer.
    expect(again.sampled).toBe(turns.length - 1);
    expect((await attempt(null)).play).toEqual(again.play);
    expect(again.play?.tokens).not.toEqual(undisturbed.tokens);
  });
});

describe('failures before a death', () => {
  it('keep their try numbers and charges: the record is the same as from one attempt', async () => {
    // Two tries fail at turn 0, one at turn 3.
    faultAt = ({ turn, try: number }) =>
      number < (turn === 0 ? 2 : turn === 3 ? 1 : 0) ? 'error' : undefined;
    const patient = { limits: { max_episode_failures: 4 } };
    const undisturbed = await attempt(null, patient);
    expect(undisturbed.play).toMatchObject({
      outcome: { status: 'graded', value: 1 },
      failures: { call: 3 },
    });
    for (const death of [
      { in: 'turn', index: 1 },
      { in: 'turn', index: 3 },
    ] satisfies Death[]) {
      await attempt(death, patient);
      expect((await attempt(null, patient)).play).toEqual(undisturbed.play);
    }
  });

  it('are not forgotten: the limit counts the failures of all attempts', async () => {
    faultAt = ({ turn, try: number }) => (turn === 3 || (turn === 0 && number < 2) ? 'error' : undefined);
    const undisturbed = await attempt(null);
    expect(undisturbed.play?.outcome).toEqual({ status: 'unknown', reason: 'call', failures: 3 });
    await attempt({ in: 'turn', index: 3 });
    expect((await attempt(null)).play).toEqual(undisturbed.play);
  });

  it('count even if nothing follows them, not even the opening of the next world', async () => {
    const tries: number[] = [];
    faultAt = ({ turn, try: number }) => (turn === 0 ? (tries.push(number), 'error') : undefined);
    const impatient = { limits: { max_episode_failures: 2 } };
    expect((await attempt({ in: 'open', index: 1 }, impatient)).play).toBeNull();
    // Otherwise the world of the failed call would still show that failure.
    await restartServer();
    const again = await attempt(null, impatient);
    expect(again.play?.outcome).toEqual({ status: 'unknown', reason: 'call', failures: 2 });
    expect(tries).toEqual([0, 1]);
  });

  it('that include two server deaths under one call make the next attempt play alone in a new world', async () => {
    faultAt = ({ turn, try: number }) => (turn === 0 && number < 2 ? 'drop' : undefined);
    const undisturbed = await attempt(null);
    expect(undisturbed.play).toMatchObject({ outcome: { value: 1 }, failures: { socket_lost: 2 } });
    await attempt({ in: 'turn', index: 1 });
    expect((await sessions()).sessions).toBe(1);
    const again = await attempt(null);
    expect(again.opens).toEqual([expect.objectContaining({ alone: true })]);
    expect(again.play).toEqual(undisturbed.play);
  });
});

/** Path of the only journal file. */
function journalFile(): string {
  const below = join(folder, 'journal', encodeURIComponent('runs/r/'));
  const [name] = readdirSync(below);
  return join(below, name!);
}

function nth(bytes: Buffer, text: string, count: number): number {
  let at = 0;
  for (let i = 0; i < count; i++) at = bytes.indexOf(text, at) + 1;
  return at;
}
