// Doctored episodes and outcomes, which contradict the plan, the update or the attempts that announced them.
import { gunzipSync, gzipSync } from 'node:zlib';
import type { AttemptRecord } from '../../../../src/spec/records/attempt-records.js';
import type { EpisodeRecord } from '../../../../src/spec/records/episode.js';
import { canonicalText } from '../../../../src/store/records/canonical.js';
import * as layout from '../../../../src/store/record-keys.js';
import { readState } from '../../../../src/store/runs/run-records.js';
import {
  audited,
  type Doctored,
  type Doctoring,
  edited,
  episode,
  evalEpisode,
  learned,
  otherDigest,
  run,
  update,
} from '../doctored-run.js';
import { unknown } from '../../evaluated.js';

const outcomeOf = (record: EpisodeRecord): number =>
  record.outcome.status === 'graded' ? record.outcome.value : NaN;

/** Stores the record of an attempt that is later than all others. */
function putLate(
  store: Doctored,
  step: number,
  activity: string,
  said: Pick<AttemptRecord, 'starts' | 'discarded'>,
): Promise<void> {
  return store.put(`${layout.attemptFolder(run, step, activity, 'late.2')}1.json`, 'attempt', {
    schema: 'longhaul.attempt/2',
    activity,
    attempt: 'late.2',
    n: 1,
    ...said,
    observed: { node: 'other', pid: 1, at: new Date().toISOString() },
  });
}

export const episodes: readonly Doctoring[] = [
  {
    what: "an episode's outcome was edited",
    rule: 'R11',
    ...edited(
      episode(2),
      'episode',
      (record) => (record.outcome = { status: 'graded', value: 1 - outcomeOf(record) }),
    ),
  },
  {
    what: "an episode's tokens were edited, but not its outcome",
    rule: 'R10',
    at: () => layout.batchKey(run, 2),
    doctor: (store) =>
      store.edit(episode(2), 'episode', (record) => (record.tokens[record.tokens.length - 1] = 5)),
  },
  {
    what: 'an unknown outcome was recorded as 0',
    rule: 'R25',
    at: () => episode(2),
    doctor: async (store) => {
      await store.edit(episode(2), 'episode', (record) => (record.outcome = unknown));
      await store.edit(
        update(2),
        'update',
        ({ identity }) => ((identity.outcomes[0] as (number | null)[])[0] = 0),
      );
    },
  },
  {
    what: 'an episode is missing',
    rule: 'R8',
    at: () => episode(2),
    doctor: (store) => store.remove(episode(2)),
  },
  {
    what: 'an episode for which the plan has no rollout',
    rule: 'R8',
    at: () => layout.episodeKey(run, 2, 7, 0),
    doctor: (store) => store.write(layout.episodeKey(run, 2, 7, 0), store.bytes(episode(2))),
  },
  {
    what: 'an episode is stored under the key of another rollout',
    rule: 'R8',
    at: () => episode(2, 1),
    doctor: (store) => store.write(episode(2, 1), store.bytes(episode(2, 0))),
  },
  {
    what: 'an episode was sampled from another state',
    rule: 'R8',
    at: () => episode(3),
    doctor: async (store) => {
      const other = await readState(store.store, run, 1);
      await store.edit(episode(3), 'episode', (record) => (record.state = other));
    },
  },
  {
    what: 'a turn was sampled by an older policy',
    rule: 'R8',
    ...edited(episode(3), 'episode', (record) => {
      for (const turn of record.turns) turn.policy_step -= 1;
    }),
  },
  {
    what: 'a finished episode was sampled again',
    rule: 'R9',
    at: () => episode(3),
    names: 'sampled again',
    doctor: (store) => putLate(store, 3, 'collect', { starts: [episode(3)], discarded: [episode(3)] }),
  },
  {
    what: 'a finished episode was sampled again by an attempt that had not announced it',
    rule: 'R9',
    at: () => episode(3),
    names: 'sampled again',
    doctor: (store) => putLate(store, 3, 'collect', { starts: [], discarded: [episode(3)] }),
  },
  {
    what: 'an episode of a finished evaluation was sampled again',
    rule: 'R9',
    at: evalEpisode,
    names: 'sampled again',
    doctor: (store) =>
      putLate(store, audited.last, 'evaluate', { starts: [evalEpisode()], discarded: [evalEpisode()] }),
  },
  {
    what: 'episodes that no attempt announced',
    rule: 'R9',
    at: () => episode(learned, 1),
    names: 'no attempt record announced',
    doctor: (store) => store.remove(`${layout.attemptsFolder(run, learned)}`),
  },
  {
    what: 'an episode that was announced only after it was stored',
    rule: 'R9',
    at: () => episode(learned),
    names: 'only after its record existed',
    doctor: (store) => store.touch(layout.attemptsFolder(run, learned)),
  },
  {
    what: 'an evaluation whose episodes no run announced',
    rule: 'R9',
    at: evalEpisode,
    names: 'no attempt record of any run announced',
    doctor: (store) => store.remove(`${layout.attemptsFolder(run, audited.last)}`),
  },
  {
    what: 'an episode of another plan',
    rule: 'R8',
    names: 'another plan',
    ...edited(episode(learned), 'episode', (record) => (record.plan = otherDigest)),
  },
  {
    what: 'an episode of another task',
    rule: 'R8',
    names: 'it has task',
    ...edited(episode(learned), 'episode', (record) => (record.task_key = 'another')),
  },
  {
    what: 'an episode with fewer log-probs than sampled tokens',
    rule: 'R1',
    at: () => episode(learned),
    names: 'log-probs for',
    doctor: (store) => {
      // Write the bytes here: our encoder refuses such a record.
      const record = JSON.parse(gunzipSync(store.bytes(episode(learned))).toString()) as EpisodeRecord;
      record.logprobs.pop();
      store.write(episode(learned), gzipSync(canonicalText(record)));
    },
  },
  {
    what: 'an attempt record that cannot be read',
    rule: 'R1',
    at: () => `${layout.attemptFolder(run, learned, 'collect', 'torn')}1.json`,
    doctor: (store) => store.write(`${layout.attemptFolder(run, learned, 'collect', 'torn')}1.json`, '{'),
  },
];
