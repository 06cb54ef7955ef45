// A suite is identified by its content: equal requests have the same digest, so nothing is played twice.
import { describe, expect, test } from 'vitest';
import { evaluationSampling } from '../../src/rl/sampling.js';
import { generateTasks } from '../../examples/apps/generate.js';
import { hash32 } from '../../src/rl/random.js';
import type { SuiteRecord } from '../../src/spec/records/evaluation-records.js';
import { recordDigest } from '../../src/store/records/canonical.js';
import { encodeRecord } from '../../src/store/records/record-codec.js';
import { mostEpisodes } from '../../src/spec/schedule.js';
import { runSuiteOf, suitesOf, type SuiteSource } from '../../src/sweeps/suite-tasks.js';
import { parseSweepSpec } from '../../src/sweeps/sweep-input.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { recordsOfAllKinds } from '../store/fixtures.js';

const spec = parseRunSpec({
  name: 'tiny',
  model: {
    name: 'm',
    tokenizer: '/t.json',
    chat_template: '/c.jinja',
    architecture: {
      vocab_size: 64,
      hidden_size: 32,
      intermediate_size: 64,
      num_hidden_layers: 1,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      head_dim: 16,
    },
  },
  data: { tasks: '/tasks.jsonl', eval_tasks: 6, final_eval_tasks: 10 },
  environments: [{ env_key: 'tracker' }, { env_key: 'booking' }],
  generator: { temperature: 0.7, stop: ['</tool_call>'], max_turns: 4, top_k: 5, truncated_sampling: true },
  trainer: { max_training_steps: 1 },
});
const record = { ...recordsOfAllKinds().run, spec };
const tasks = generateTasks({ apps: ['tracker', 'booking'], seed: 1, train_tasks: 20, held_out_tasks: 24 });
const identities = { tracker: 'a'.repeat(64), booking: 'b'.repeat(64), elsewhere: 'c'.repeat(64) };
const source: SuiteSource = { record, tasks, numerics: { backend: 'cpu', version: 3 }, identities };

const suites = (...list: object[]) =>
  suitesOf(parseSweepSpec({ name: 's', checkpoints: [{ run: 'tiny' }], suites: list }), source);
const only = (suite: object) => suites(suite)[0]!;

/** A run's own suite, as existing records have it: if its digest changed, every state would be played again. */
function ownSuite(name: 'interval' | 'final', size: number): SuiteRecord {
  const held = tasks.filter(({ split }) => split === 'held_out').slice(0, size);
  return {
    schema: 'longhaul.suite/2',
    name,
    environments: Object.fromEntries(
      Object.entries(identities).filter(([key]) => held.some(({ env_key }) => env_key === key)),
    ),
    tasks: held.map(({ task_key, env_key, template }, index) => ({
      task_key,
      env_key,
      template,
      seed: hash32(record.seed, index),
    })),
    samples_per_task: 1,
    sampling: evaluationSampling(spec.generator),
    seed: record.seed,
    digests: {
      tokenizer: record.tokenizer,
      chat_template: record.chat_template,
      tool_parser: record.tool_parser,
      dataset: record.dataset.digest,
    },
    numerics: source.numerics,
  };
}

describe('a sweep that asks for a suite which a run has played', () => {
  test('has the run’s digest if it uses the run’s name for the suite', () => {
    const [interval, final] = suites({ name: 'interval' }, { name: 'final' });
    expect(interval?.record).toEqual(ownSuite('interval', 6));
    expect(interval?.digest).toBe(recordDigest(ownSuite('interval', 6)));
    expect(final?.digest).toBe(recordDigest(ownSuite('final', 10)));
  });

  test('has the run’s digest if the content is equal, and keeps its own name in tables', () => {
    expect(only({ name: 'mine', max_tasks: 10 })).toMatchObject({
      label: 'mine',
      digest: recordDigest(ownSuite('final', 10)),
    });
  });

  test('has the samples and the temperature of the run’s own evaluations', () => {
    const generator = { ...spec.generator, eval_n_samples_per_prompt: 3, eval_temperature: 0.8 };
    const several = { ...source, record: { ...record, spec: { ...spec, generator } } };
    const own = runSuiteOf('final', several);
    expect(own).toEqual({
      ...ownSuite('final', 10),
      samples_per_task: 3,
      sampling: { ...ownSuite('final', 10).sampling, temperature: 0.8 },
    });
    const asked = { name: 's', checkpoints: [{ run: 'tiny' }] };
    const suite = { name: 'mine', max_tasks: 10, samples: 3, temperature: 0.8 };
    expect(suitesOf(parseSweepSpec({ ...asked, suites: [suite] }), several)[0]?.digest).toBe(
      recordDigest(own),
    );
  });

  test('has the digest of another sweep that uses another name', () => {
    expect(only({ name: 'a', samples: 4 }).digest).toBe(only({ name: 'b', samples: 4 }).digest);
    expect(only({ name: 'a', samples: 4 }).digest).not.toBe(only({ name: 'a', samples: 2 }).digest);
    expect(only({ name: 'a', temperature: 0.5 }).digest).not.toBe(only({ name: 'a' }).digest);
    expect(only({ name: 'a', seed: 8 }).digest).not.toBe(only({ name: 'a' }).digest);
  });

  test('is refused if it names the same suite twice', () => {
    expect(() => suites({ name: 'final' }, { name: 'mine', max_tasks: 10 })).toThrow(
      'suites[1]: asks for the same tasks with the same sampling as "final"',
    );
  });
});

describe('a suite’s tasks', () => {
  test('are filtered by split, environment and difficulty, and keep the seeds they have without filters', () => {
    const all = only({ name: 'all' }).record.tasks;
    expect(all).toHaveLength(24);
    const tracker = only({ name: 't', environments: ['tracker'] }).record.tasks;
    expect(tracker).toEqual(all.filter(({ env_key }) => env_key === 'tracker'));
    const level = tasks.find(({ split }) => split === 'held_out')!.difficulty;
    const easy = only({ name: 'e', difficulty: [level], max_tasks: 3 }).record.tasks;
    expect(easy).toHaveLength(3);
    expect(all).toEqual(expect.arrayContaining(easy));
    expect(only({ name: 'train', split: 'train' }).record.tasks).toHaveLength(20);
  });

  test('are refused if they need more episodes than a node can have open, with the allowed number', () => {
    const held = only({ name: 'all' }).record.tasks.length;
    const most = Math.floor(mostEpisodes / held);
    expect(only({ name: 'most', samples: most }).record.samples_per_task).toBe(most);
    expect(() => suites({ name: 'more', samples: most + 1 })).toThrow(
      `suites[0]: asks for ${held} tasks × ${most + 1} samples, ${held * (most + 1)} episodes of each state; a suite may have at most 20000`,
    );
  });

  test('make a record that the store accepts', async () => {
    await encodeRecord(
      'suite',
      only({ name: 'x', samples: 4, temperature: 0.5, environments: ['booking'] }).record,
    );
  });

  test('are refused if there are none, with the filter that leaves none', () => {
    expect(() => only({ name: 'x', environments: ['traker'] })).toThrow(
      'suites[0].environments: leaves no task: builtin v1 has no held_out task of traker; did you mean tracker?',
    );
    expect(() => only({ name: 'x', difficulty: [99] })).toThrow(
      /suites\[0\]\.difficulty: leaves no task: none of the 24 held_out tasks has difficulty 99; they have \d/,
    );
    const empty = { ...source, tasks: tasks.filter(({ split }) => split === 'train') };
    const sweep = parseSweepSpec({ name: 's', checkpoints: [{ run: 'tiny' }], suites: [{ name: 'final' }] });
    expect(() => suitesOf(sweep, empty)).toThrow(
      'suites[0].split: is held_out, but builtin v1 has no task of that split',
    );
  });
});
