// Tests the counts of how episodes went: compares them with simpler ways to count, and reads recorded episodes.
import { coderOf } from './recorded-run.js';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { addError, noErrors, normalisedError, ranked } from '../../src/report/transcripts/error-patterns.js';
import { selectEpisodes } from '../../src/report/history/episode-selection.js';
import {
  addGroup,
  addTrajectory,
  cutOff,
  marks,
  noTrajectories,
  plusTrajectories,
  premature,
  repeatedCalls,
  type TrajectoryCounts,
  turnsAt,
  turnsInAll,
  unknownOutcomes,
} from '../../src/report/transcripts/trajectory-analysis.js';
import { readHistory, type RunHistory } from '../../src/report/history/run-history.js';
import { transcriptReader } from '../../src/report/transcripts/transcripts.js';
import { trajectoryOf, type Trajectory } from '../../src/report/transcripts/trajectory.js';
import {
  callOf,
  decode,
  failed,
  passed,
  readEpisodes,
  recordEvaluated,
  recordTrained,
  saidEpisode,
  type SaidEpisode,
} from './recorded-episodes.js';
import { recordedRun } from './recorded-run.js';

const turn = fc.record({
  call: fc.constantFrom(null, 'a', 'b', 'c'),
  tool: fc.constantFrom(null, 'find'),
  isError: fc.boolean(),
  error: fc.constantFrom(null, 'no issue 17', 'not allowed'),
});
const trajectory: fc.Arbitrary<Trajectory> = fc.record({
  id: fc.string(),
  env_key: fc.constantFrom('tracker', 'booking'),
  verdict: fc.constantFrom('pass', 'fail', 'unknown'),
  stop_reason: fc.constantFrom('done', 'max_turns', 'length', 'unknown'),
  reason: fc.constantFrom(null, 'open_failed', 'grade_failed'),
  turns: fc.array(turn, { maxLength: 12 }),
});

function counted(trajectories: readonly Trajectory[]): TrajectoryCounts {
  const counts = noTrajectories();
  for (const one of trajectories) addTrajectory(counts, one);
  return counts;
}

/** The counts without the example transcripts, which depend on the order. */
function comparable({ patterns, turns, unknown, ...rest }: TrajectoryCounts): unknown {
  return {
    ...rest,
    turns: [...turns].sort(([a], [b]) => a - b),
    unknown: [...unknown].sort(),
    patterns: ranked(patterns).map(({ example: _, ...pattern }) => pattern),
    others: patterns.others,
  };
}

describe('counts of trajectories', () => {
  test('are the same in any order, and when partial counts are added', () => {
    fc.assert(
      fc.property(fc.array(trajectory), fc.array(trajectory), (some, others) => {
        const whole = comparable(counted([...some, ...others]));
        expect(comparable(counted([...others, ...some]))).toEqual(whole);
        expect(comparable(plusTrajectories(counted(some), counted(others)))).toEqual(whole);
      }),
    );
  });

  test('agree with counting by hand', () => {
    fc.assert(
      fc.property(fc.array(trajectory), (all) => {
        const counts = counted(all);
        expect(counts.episodes).toBe(all.length);
        expect(turnsInAll(counts)).toBe(all.flatMap(({ turns }) => turns).length);
        expect(counts.errors).toBe(all.flatMap(({ turns }) => turns.filter(({ isError }) => isError)).length);
        expect(Object.values(counts.endedBy).reduce((a, b) => a + b, 0)).toBe(all.length);
        expect(cutOff(counts)).toBe(all.filter(({ stop_reason }) => /max|length/.test(stop_reason)).length);
        expect(unknownOutcomes(counts)).toBe(all.filter(({ reason }) => reason !== null).length);
        expect(ranked(counts.patterns).reduce((sum, { count }) => sum + count, 0)).toBe(counts.errors);
        expect(premature(counts)).toBeLessThanOrEqual(counts.endedBy.done);
      }),
    );
  });

  test('have the same percentiles as a sorted list of all lengths', () => {
    fc.assert(
      fc.property(fc.array(trajectory, { minLength: 1 }), fc.constantFrom(0.5, 0.95, 1), (all, share) => {
        const lengths = all.map(({ turns }) => turns.length).sort((a, b) => a - b);
        expect(turnsAt(counted(all), share)).toBe(lengths[Math.ceil(share * lengths.length) - 1]);
      }),
    );
  });

  test('include the groups with at least two graded samples and, among these, the groups whose rewards differ', () => {
    fc.assert(
      fc.property(fc.array(fc.array(fc.constantFrom(0, 1, null), { maxLength: 5 })), (groups) => {
        const counts = noTrajectories();
        for (const values of groups) addGroup(counts, values);
        const graded = groups.map((values) => values.filter((value) => value !== null));
        expect(counts.groups).toEqual({
          compared: graded.filter((values) => values.length >= 2).length,
          varied: graded.filter((values) => values.includes(0) && values.includes(1)).length,
        });
      }),
    );
  });
});

describe('a call counts as repeated', () => {
  test.each([
    ['if it is made twice in a row', ['a', 'a'], 1],
    ['if only a turn without a call lies between', ['a', null, 'a'], 1],
    ['if it is made three times, whatever lies between', ['a', 'b', 'a', 'c', 'a'], 2],
    ['but not if another call lies between two of it: a second look may be right', ['a', 'b', 'a'], 0],
    ['but not if all calls differ', ['a', 'b', 'c'], 0],
  ] as const)('%s', (_, calls, expected) => {
    expect(repeatedCalls(calls)).toBe(expected);
  });

  test('at most as often as it was made again, and never if all calls differ', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('a', 'b', 'c', null)), (calls) => {
        const made = calls.filter((call) => call !== null);
        expect(repeatedCalls(calls)).toBeLessThanOrEqual(made.length - new Set(made).size);
        const often = ['a', 'b', 'c'].some((one) => made.filter((call) => call === one).length >= 3);
        const inRow = made.some((call, index) => call === made[index - 1]);
        expect(repeatedCalls(calls) > 0).toBe(often || inRow);
      }),
    );
  });
});

describe('the pattern of an error', () => {
  test.each([
    ['Error: there is no issue ISS-17', 'there is no issue ISS-…'],
    ['there is no issue ISS-QKFD', 'there is no issue ISS-…'],
    ['{"error":"404 ISS-7Q2K has no label question"}', '404 ISS-… has no label question'],
    ['404 of 500 rows', '404 of # rows'],
    ['{"error":"issue 3QKK of \\"Billing\\" is locked"}', 'issue # of "…" is locked'],
    ["Error: unknown argument 'colour', don't guess", "unknown argument '…', don't guess"],
    ['Error: 2 of 1,024.5 rows\n  failed', '# of # rows failed'],
    ['', '(no message)'],
    ['{"error":', '{"…":'],
  ])('in %j is %j', (text, pattern) => {
    expect(normalisedError(text)).toBe(pattern);
  });

  test('is short and on one line', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.string({ unit: 'binary' })), (text) => {
        const once = normalisedError(text);
        expect(once.length).toBeLessThanOrEqual(140);
        expect(once).not.toMatch(/[\n\t]/);
      }),
    );
  });

  test('of an endless answer is found quickly', () => {
    const begun = performance.now();
    for (const letter of ['a', '"', '1', 'A-', '{"a":']) normalisedError(letter.repeat(200_000));
    expect(performance.now() - begun).toBeLessThan(2_000);
  });

  test('is counted even if there are too many different patterns', () => {
    const patterns = noErrors();
    for (let n = 0; n < 700; n++)
      addError(patterns, { tool: 'find', message: `${'x'.repeat(n)}`, example: `t${n}` });
    expect(patterns.kept.size).toBe(500);
    expect(patterns.others).toBe(200);
  });
});

const find = (id: string, more: object = {}): SaidEpisode['turns'][number] => ({
  says: callOf('find', { id, ...more }),
  tool: 'find',
  answer: 'Tool result:\n{"ok":true}',
});
const refused = { ...find('ISS-1'), answer: 'Error: {"error":"no issue ISS-1"}', error: true } as const;
const done = { says: '<done>' };

describe('an episode', () => {
  const look = (said: SaidEpisode): { found: number; counts: TrajectoryCounts; trajectory: Trajectory } => {
    const record = saidEpisode(said, { slot: 0, sample: 0 });
    const one = trajectoryOf('t', record, transcriptReader(coderOf(decode))(record));
    const counts = noTrajectories();
    return { found: addTrajectory(counts, one), counts, trajectory: one };
  };

  test('ended by the model without a call, or after only refused calls, counts as prematurely done', () => {
    const request = 'Close it.';
    expect(look({ request, turns: [done], outcome: failed }).found).toBe(marks.prematureDone);
    const afterError = look({ request, turns: [refused, done], outcome: failed });
    expect(afterError.found).toBe(marks.prematureDone | marks.toolError);
    expect(afterError.counts).toMatchObject({ doneWithoutCall: 0, doneAfterErrors: 1 });
    expect(look({ request, turns: [done], outcome: passed }).found).toBe(0);
    expect(look({ request, turns: [find('1'), done], outcome: failed }).found).toBe(0);
  });

  test('has equal calls even if their arguments are in another order', () => {
    const turns = [
      find('1', { all: true }),
      { ...find('1'), says: callOf('find', { all: true, id: '1' }) },
      done,
    ];
    expect(look({ request: 'Find.', turns, outcome: passed }).found).toBe(marks.repeated);
  });

  test('says what the tool answered, except after the last turn', () => {
    const { trajectory: one, counts } = look({
      ...{ request: 'Find.', turns: [refused, { says: '<tool_call>{', error: true }], outcome: failed },
      stop_reason: 'max_turns',
    });
    expect(one.turns.map(({ error }) => error)).toEqual(['Error: {"error":"no issue ISS-1"}', null]);
    expect(counts).toMatchObject({ errors: 2, malformed: 1, calls: 1 });
    expect(ranked(counts.patterns).map(({ tool, message }) => [tool, message])).toEqual([
      [null, '(the last turn: its answer is in no record)'],
      ['find', 'no issue ISS-…'],
    ]);
  });
});

describe('the episodes of a run', () => {
  test('are counted separately for training and for the newest evaluation', async () => {
    const store = await recordedRun();
    const history = await readHistory(store, 'tiny');
    const request = 'Close it.';
    await recordEvaluated(store, history, [
      { request, turns: [find('1'), done], outcome: passed },
      { request, turns: [done], outcome: failed, env_key: 'booking' },
    ]);
    const cut: SaidEpisode = { request, turns: [find('1')], outcome: failed, stop_reason: 'max_turns' };
    await recordTrained(store, 'tiny', 7, [
      [cut, { request, turns: [find('1'), done], outcome: passed }],
      [cut, cut],
    ]);
    const { analysis, points, shown } = await readEpisodes(store, history);
    expect(analysis.newestName).toBe('the final evaluation after step 42');
    expect(analysis.newest.get('booking')).toMatchObject({ episodes: 1, doneWithoutCall: 1 });
    expect(analysis.training.get('tracker')).toMatchObject({
      ...{ episodes: 4, endedBy: { max_turns: 3, done: 1 }, groups: { compared: 2, varied: 1 } },
    });
    expect(points).toEqual([{ step: 7, turns: 1.25, repeating: 0, premature: 0, cutOff: 0.75 }]);
    expect(shown.index.rows).toHaveLength(6);
    expect(shown.unreadable).toEqual([]);
  });

  test('that cannot be read are left out and reported, and the others are counted', async () => {
    const store = await recordedRun();
    const history = await readHistory(store, 'tiny');
    const said = { request: 'Close it.', turns: [done], outcome: failed };
    await recordTrained(store, 'tiny', 7, [[said]]);
    await store.create('runs/tiny/steps/000008/episodes/00000.000.json.gz', Buffer.from('no gzip'));
    const { shown } = await readEpisodes(store, history);
    expect(shown.index.rows).toHaveLength(1);
    expect(shown.unreadable).toEqual([expect.stringMatching(/^training step 8: .*00000\.000/)]);
  });
});

describe('episodes of a long run', () => {
  const historyOf = (steps: number, episodes: number): RunHistory =>
    ({
      evaluations: [],
      updates: Array.from({ length: steps }, (_, index) => ({
        identity: { run: 'r', step: index + 1, outcomes: [Array.from({ length: episodes }, () => 1)] },
      })),
    }) as unknown as RunHistory;

  test('are read from as many steps as fit, evenly spread, including the first and the last', () => {
    const steps = fc.integer({ min: 2, max: 400 });
    fc.assert(
      fc.property(
        steps,
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 100, max: 4_000 }),
        (n, each, limit) => {
          const { sources, trainingEpisodes } = selectEpisodes(historyOf(n, each), limit);
          expect(trainingEpisodes).toBe(n * each);
          expect(sources.length * each).toBeLessThanOrEqual(limit);
          if (n * each <= limit) {
            expect(sources).toHaveLength(n);
            return;
          }
          expect(sources.length * each).toBeGreaterThan(limit * 0.9 - 2 * each);
          expect([sources[0]?.step, sources.at(-1)?.step]).toEqual([1, n]);
          const gaps = sources.slice(1).map(({ step }, index) => step - (sources[index]?.step ?? 0));
          expect(Math.max(...gaps) - Math.min(...gaps)).toBeLessThanOrEqual(1);
        },
      ),
    );
  });
});
