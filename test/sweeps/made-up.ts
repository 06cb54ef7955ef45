// Invented states on an invented suite: each task has its own pass rate, which each state shifts.
import { uniform } from '../../src/rl/random.js';
import type { SuiteRecord } from '../../src/spec/records/evaluation-records.js';
import { recordDigest } from '../../src/store/records/canonical.js';
import { sha256Hex } from '../../src/base/sha256.js';
import type { SweepSuiteEntry } from '../../src/spec/records/sweep-record.js';
import {
  compareState,
  emptyComparison,
  type Baseline,
  type PlayedState,
  type SuiteComparison,
} from '../../src/sweeps/comparison.js';
import { addEpisode, emptyTally, type EpisodeFigures } from '../../src/sweeps/tallies.js';
import { recordsOfAllKinds } from '../store/fixtures.js';

export interface Played {
  run: string;
  step: number;
  /** Added to the tasks' log-odds, by environment. */
  shift: Record<string, number>;
  /** Share of outcomes that are unknown. */
  unknown?: number;
  /** How many of the last tasks are not played. */
  unplayed?: number;
}

export function madeUpSuite(
  label: string,
  environments: readonly string[],
  tasks: number,
  samples: number,
): SweepSuiteEntry {
  const record: SuiteRecord = {
    ...recordsOfAllKinds().suite,
    name: 'sweep',
    samples_per_task: samples,
    tasks: Array.from({ length: tasks }, (_, index) => {
      const env_key = environments[index % environments.length] as string;
      const template = ['find', 'close', 'assign', 'move'][
        Math.floor(uniform('template', index) * 4)
      ] as string;
      return {
        task_key: `${env_key}/${template}/${index}`,
        env_key,
        template: `${env_key}/${template}`,
        seed: index,
      };
    }),
  };
  return { label, record, digest: recordDigest(record) };
}

export function madeUpState({ record }: SweepSuiteEntry, played: Played): PlayedState {
  const { run, step, shift, unknown = 0, unplayed = 0 } = played;
  const tasks = emptyTally(record);
  for (const [slot, { env_key, task_key }] of record.tasks
    .slice(0, record.tasks.length - unplayed)
    .entries()) {
    // Most tasks are solved almost always or almost never.
    const odds = 6 * (uniform('odds', slot) - 0.5) + (shift[env_key] ?? 0);
    for (let sample = 0; sample < record.samples_per_task; sample++) {
      const draw = (what: string): number => uniform(what, run, step, slot, sample);
      const passed = draw('pass') < 1 / (1 + Math.exp(-odds));
      const calls = 1 + Math.floor(draw('calls') * 5);
      addEpisode(tasks, {
        slot,
        sample,
        task_key,
        outcome:
          draw('unknown') < unknown
            ? { status: 'unknown', reason: 'open_failed', failures: 3 }
            : { status: 'graded', value: Number(passed) },
        metrics: {
          turns: calls + 1,
          tool_calls: calls,
          tool_errors: Math.floor(draw('errors') * calls * 0.4),
        },
      });
    }
  }
  return { run, step, state: sha256Hex(`${run}@${step}`), tasks };
}

export function episode(
  { record }: SweepSuiteEntry,
  slot: number,
  sample: number,
  value: number | null,
  metrics = { turns: 2, tool_calls: 1, tool_errors: 0 },
): EpisodeFigures {
  const task_key = record.tasks[slot]?.task_key ?? '';
  const outcome =
    value === null
      ? ({ status: 'unknown', reason: 'open_failed', failures: 3 } as const)
      : ({ status: 'graded', value } as const);
  return { slot, sample, task_key, outcome, metrics };
}

/** Compares states like `compareSweep`, but on this thread. */
export function compareStates(
  entry: SweepSuiteEntry,
  states: readonly PlayedState[],
  baseline: Baseline | null,
): SuiteComparison {
  const named = states.find(({ state }) => state === baseline?.state);
  const reference = named ?? states[0] ?? null;
  const suite = emptyComparison(entry, reference, baseline);
  for (const state of states) if (reference) suite.states.push(compareState(suite, reference, state));
  return suite;
}
