import { describe, expect, test } from 'vitest';
import { sha256Hex } from '../../src/base/sha256.js';
import { levelOf, regressions, type PlayedState, type SuiteComparison } from '../../src/sweeps/comparison.js';
import { comparisonText } from '../../src/sweeps/comparison-table.js';
import { resultRow, resultsFile } from '../../src/sweeps/results-rows.js';
import { addEpisode, emptyTally } from '../../src/sweeps/tallies.js';
import { fisherExact, taskChanges, type TaskPair } from '../../src/sweeps/task-changes.js';
import { renderComparison } from '../../src/sweeps/comparison-page.js';
import { compareStates, episode, madeUpState, madeUpSuite } from './made-up.js';

describe('a state’s figures', () => {
  const suite = madeUpSuite('s', ['tracker', 'booking'], 4, 2);
  const state = (...values: (number | null | 'unplayed')[]): PlayedState => {
    const tasks = emptyTally(suite.record);
    for (const [place, value] of values.entries()) {
      if (value === 'unplayed') continue;
      const metrics = { turns: 3, tool_calls: 2, tool_errors: place % 2 };
      addEpisode(tasks, episode(suite, Math.floor(place / 2), place % 2, value, metrics));
    }
    return { run: 'a', step: values.length, state: sha256Hex(JSON.stringify(values)), tasks };
  };

  test('count unknown and unplayed outcomes separately, and a partial reward as not passed', () => {
    const { states } = compareStates(suite, [state(1, 0, 0.9, null, null, null, 1, 'unplayed')], null);
    expect(states[0]?.all).toEqual({
      tasks: 4,
      episodes: 7,
      graded: 4,
      unknown: 3,
      missing: 1,
      pass_at_1: (0.5 + 0 + 1) / 3,
      pass_at_k: [{ k: 2, value: 1, tasks: 1 }],
      mean_turns: 3,
      mean_tool_calls: 2,
      tool_errors: 3,
      tool_error_rate: 3 / 14,
    });
    expect(states[0]?.environments['tracker']).toMatchObject({
      tasks: 2,
      episodes: 4,
      graded: 2,
      unknown: 2,
    });
    const nothing = compareStates(suite, [state()], null).states[0]?.all;
    expect(nothing).toMatchObject({ pass_at_1: null, missing: 8, tool_error_rate: null });
  });

  test('are compared over the tasks with grades for both states', () => {
    const before = state(0, 0, 0, 0, 1, 1, null, null);
    const after = state(1, 1, 'unplayed', 'unplayed', 1, 0, 1, 1);
    const { states } = compareStates(suite, [before, after], null);
    expect(states[0]?.versus).toBeNull();
    expect(states[1]?.versus?.all).toMatchObject({ tasks: 2, estimate: 0.25, verdict: 'unclear' });
    expect(states[1]?.versus?.tasks.map(({ verdict }) => verdict)).toEqual(['within noise', 'within noise']);
  });

  test('are also compared by pass@k for the largest k, if tasks have several samples', () => {
    const { states } = compareStates(
      suite,
      [state(1, 0, 1, 0, 0, 0, 1, 1), state(1, 1, 1, 1, 0, 1, 0, 0)],
      null,
    );
    expect(states[1]?.versus?.all?.estimate).toBeCloseTo((0.5 + 0.5 + 0.5 - 1) / 4, 12);
    expect(states[1]?.versus?.largest_k?.estimate).toBeCloseTo((0 + 0 + 1 - 1) / 4, 12);
  });

  test('count an episode only once, and refuse an episode that is not in the suite', () => {
    const tasks = emptyTally(suite.record);
    addEpisode(tasks, episode(suite, 0, 0, 1));
    addEpisode(tasks, episode(suite, 0, 0, 1));
    expect(compareStates(suite, [{ run: 'a', step: 1, state: 'x', tasks }], null).states[0]?.all.graded).toBe(
      1,
    );
    expect(() => addEpisode(tasks, episode(suite, 0, 2, 1))).toThrow('has no sample 2');
    expect(() => addEpisode(tasks, { ...episode(suite, 0, 0, 1), task_key: 'another' })).toThrow(RangeError);
  });

  test('make a row with SkyRL’s names, with the same bytes for any order of episodes', () => {
    const played = state(1, 0, 0.9, 0, 1, 1, 0, null);
    const comparison = compareStates(suite, [played], null);
    const row = resultRow(comparison, played, comparison.states[0]!);
    expect(row).toMatchObject({
      run: 'a',
      global_step: 8,
      suite_name: 's',
      'eval/num_samples': 7,
      'eval/all/pass_at_1': 0.375,
      'eval/all/pass_at_2': 2 / 3,
      'eval/all/pass_at_n': 0.75,
      'eval/all/unknown': 1,
      'eval/all/total_tool_errors': 4,
      'eval/tracker/pass_at_1': 0.75,
      'eval/booking/pass_at_1': 0,
      'eval/booking/tool_error_rate': 0.25,
    });
    expect(row['eval/all/variance_per_prompt']).toBeCloseTo((0.25 + 0.2025 + 0) / 3, 12);
    expect(row['eval/all/signal_ratio']).toBeCloseTo(2 / 3, 12);
    const file = resultsFile([row, row]);
    expect(
      file
        .trimEnd()
        .split('\n')
        .map((line): unknown => JSON.parse(line)),
    ).toEqual([row, row]);
  });
});

test('an environment named like the scope of all environments does not replace it in a row', () => {
  const suite = madeUpSuite('s', ['all', 'other'], 2, 1);
  const tasks = emptyTally(suite.record);
  addEpisode(tasks, episode(suite, 0, 0, 1));
  addEpisode(tasks, episode(suite, 1, 0, 0));
  const played = { run: 'a', step: 1, state: 'x', tasks };
  const comparison = compareStates(suite, [played], null);
  expect(resultRow(comparison, played, comparison.states[0]!)['eval/all/pass_at_1']).toBe(0.5);
});

describe('a verdict', () => {
  /** In the reference no sample passes; in the other state, all samples of the first `moved` tasks. */
  const versus = (tasks: number, moved: number, samples = 4) => {
    const suite = madeUpSuite('s', ['e'], tasks, samples);
    const [before, after] = [0, moved].map((first, step) => {
      const tally = emptyTally(suite.record);
      for (let slot = 0; slot < tasks; slot++)
        for (let sample = 0; sample < samples; sample++)
          addEpisode(tally, episode(suite, slot, sample, Number(slot < first)));
      return { run: 'a', step, state: `${step}`, tasks: tally };
    });
    return compareStates(suite, [before!, after!], null).states[1]?.versus;
  };

  test('needs at least ten tasks', () => {
    expect(versus(9, 9)?.all).toMatchObject({ estimate: 1, verdict: 'unclear' });
    expect(versus(10, 10)?.all).toMatchObject({ estimate: 1, verdict: 'improving' });
  });

  test('is flat only if a noticeable change would have shown', () => {
    expect(versus(200, 0)?.all?.verdict).toBe('flat');
    expect(versus(12, 0, 1)?.all?.verdict).toBe('unclear');
  });

  test('has a wider interval for few tasks, and for fewer samples per task', () => {
    const { all, largest_k } = versus(30, 0)!;
    expect(all?.low).toBeLessThan(-0.01);
    expect(all?.high).toBeGreaterThan(0.01);
    // For pass@4, four samples give one answer per task; for pass@1, they give four.
    expect(largest_k?.high).toBeGreaterThan((all?.high ?? 1) * 1.5);
  });
});

describe('a comparison', () => {
  const suite = madeUpSuite('held-out', ['tracker', 'booking'], 100, 4);
  const states = [
    madeUpState(suite, { run: 'a', step: 10, shift: {} }),
    madeUpState(suite, { run: 'a', step: 20, shift: { tracker: 3, booking: 0.3 } }),
    madeUpState(suite, { run: 'a', step: 30, shift: { tracker: -2, booking: -2 }, unknown: 0.1 }),
  ];
  const baseline = { state: states[0]!.state, regression: 0.05 };

  test('says what became better or worse, and where, and raises the alarm', () => {
    const comparison = compareStates(suite, states, baseline);
    const [, better, worse] = comparison.states;
    expect(better?.versus?.all?.verdict).toBe('improving');
    expect(better?.versus?.environments['tracker']?.verdict).toBe('improving');
    expect(better?.versus?.environments['booking']?.verdict).not.toBe('declining');
    expect(better?.versus?.alarms[0]).toEqual({ scope: 'all', level: 'clear' });
    expect(worse?.versus?.all?.verdict).toBe('declining');
    expect(worse?.versus?.largest_k?.verdict).toBe('declining');
    expect(worse?.all.unknown).toBeGreaterThan(20);
    expect(regressions(comparison)).toEqual([
      { place: { run: 'a', step: 30 }, scopes: ['all', 'booking', 'tracker'] },
    ]);
  });

  test('reports no regression within the loss that the sweep allows, wherever the baseline is in the list', () => {
    expect(regressions(compareStates(suite, states, { ...baseline, regression: 0.9 }))).toEqual([]);
    const last = compareStates(suite, [...states].reverse(), baseline);
    expect(last.reference).toMatchObject({ step: 10, named: true });
    expect(regressions(last)).toEqual(regressions(compareStates(suite, states, baseline)));
  });

  test('by template adds up to the comparison of all tasks', () => {
    const { all, templates } = compareStates(suite, states, baseline).states[1]!.versus!;
    const parts = Object.entries(templates);
    expect(parts.map(([name]) => name)).toEqual(
      [...new Set(suite.record.tasks.map(({ template }) => template))].sort(),
    );
    const sum = parts.reduce((total, [, one]) => total + (one?.estimate ?? 0) * (one?.tasks ?? 0), 0);
    expect(sum / 100).toBeCloseTo(all?.estimate ?? NaN, 12);
  });

  test('raises no alarm without a baseline, and compares with the first state', () => {
    const comparison = compareStates(suite, states, null);
    expect(comparison.reference).toMatchObject({ run: 'a', step: 10, named: false });
    expect(comparison.states[2]?.versus?.alarms).toEqual([]);
    expect(regressions(comparison)).toEqual([]);
  });

  test('raises no alarm if the baseline was not played, and says so; otherwise says how reliable alarms are', () => {
    const text = (one: SuiteComparison): string =>
      comparisonText({ name: 'n', project: 'p', suites: [one], skipped: [] });
    const lacking = compareStates(suite, states.slice(1), baseline);
    expect(lacking).toMatchObject({
      lacks_baseline: true,
      regression: null,
      reference: { step: 20, named: false },
    });
    expect(text(lacking)).toContain('! the baseline was not played on this suite, so regressions');
    expect(text(lacking)).not.toContain('false alarm');
    const whole = compareStates(suite, states, baseline);
    expect(whole.lacks_baseline).toBe(false);
    expect(text(whole)).not.toContain('the baseline was not played');
    expect(text(whole)).toContain(
      'below −5.0 points; a state that is worse by exactly this much raises a false alarm in 2.5 %',
    );
  });

  test('is the same whichever other states are compared', () => {
    const [, twenty] = compareStates(suite, states, baseline).states;
    const [, alone] = compareStates(suite, [states[0]!, states[1]!], baseline).states;
    expect(alone).toEqual(twenty);
    expect(compareStates(suite, states, baseline)).toEqual(compareStates(suite, states, baseline));
  });

  test('survives a round trip through JSON', () => {
    const comparison = compareStates(suite, states, baseline);
    expect(JSON.parse(JSON.stringify(comparison))).toEqual(comparison);
  });

  test('is readable in a terminal', () => {
    const skipped = [{ run: 'a', step: 40, reason: 'its file state.safetensors is missing' }];
    const text = comparisonText({
      name: 'nightly',
      project: 'p',
      suites: [compareStates(suite, states, baseline)],
      skipped,
    });
    const lines = text.split('\n');
    expect(lines[0]).toBe(
      'nightly · held-out: 100 tasks × 4 samples at temperature 1, against a@10, the baseline',
    );
    expect(lines[1]).toMatch(
      /^state +pass@1 +pass@4 +change in points \[95 %\] +verdict +turns +tool errors +unknown$/,
    );
    expect(lines[2]).toMatch(/^a@10 +\d\d\.\d % +\d\d\.\d % +baseline +\d\.\d +\d+\.\d % +0$/);
    expect(lines[3]).toMatch(/^a@20 .* \+\d+\.\d \[\+\d+\.\d, \+\d+\.\d\] +improving/);
    expect(text).toContain(
      '! a@30 is significantly worse than the baseline, by more than 5.0 points, on all tasks, booking, tracker',
    );
    expect(text).toContain('left out: 1\n  a@40 its file state.safetensors is missing');
    expect(text).toMatch(/tasks of a@30: 0 better, \d+ worse, \d+ moved within noise/);
    expect(Math.max(...lines.slice(0, 12).map((line) => line.length))).toBeLessThanOrEqual(120);
  });

  test('sends no control characters of a task’s name to the terminal', () => {
    const hostile = madeUpSuite('s', ['\u001b[31mred\u202e'], 40, 4);
    const played = [-4, 4].map((shift, step) =>
      madeUpState(hostile, { run: 'a', step, shift: { '\u001b[31mred\u202e': shift } }),
    );
    const text = comparisonText({
      name: 'n',
      project: 'p',
      suites: [compareStates(hostile, played, null)],
      skipped: [],
    });
    expect(text).toContain('better');
    expect(text).not.toMatch(/[\u001b\u202e]/);
  });
});

describe('the alarm', () => {
  const difference = (low: number, estimate: number, high: number, tasks = 100) => ({
    low,
    estimate,
    high,
    tasks,
    verdict: 'flat' as const,
  });
  test.each([
    [difference(-0.3, -0.2, -0.1), 'regressed'],
    [difference(-0.3, -0.1, 0), 'suspected'],
    [difference(-0.06, -0.01, 0.05), 'unclear'],
    [difference(-0.04, -0.01, 0.05), 'clear'],
    [difference(-0.3, -0.2, -0.1, 9), 'unclear'],
    [null, 'unclear'],
  ] as const)('for the difference %o, with a loss of 5 points allowed, is %s', (one, level) => {
    expect(levelOf(one, 0.05)).toBe(level);
  });
});

describe('changes of tasks', () => {
  const pair = (task_key: string, before: [number, number], after: [number, number]): TaskPair => ({
    task_key,
    env_key: 'e',
    before: { passed: before[0], graded: before[1] },
    after: { passed: after[0], graded: after[1] },
  });

  test('are tested by Fisher’s exact test', () => {
    // The tea-tasting example, R's fisher.test(matrix(c(3, 1, 1, 3), 2)), and others.
    expect(fisherExact({ passed: 3, graded: 4 }, { passed: 1, graded: 4 })).toBeCloseTo(0.4857143, 6);
    expect(fisherExact({ passed: 0, graded: 4 }, { passed: 4, graded: 4 })).toBeCloseTo(0.0285714, 6);
    expect(fisherExact({ passed: 1, graded: 10 }, { passed: 11, graded: 14 })).toBeCloseTo(0.0027594, 6);
    expect(fisherExact({ passed: 0, graded: 1 }, { passed: 1, graded: 1 })).toBe(1);
  });

  test('are claimed only if chance does not explain them, for any number of tasks', () => {
    const one = taskChanges([
      pair('a', [0, 4], [4, 4]),
      pair('b', [1, 4], [2, 4]),
      pair('c', [2, 4], [2, 4]),
    ]);
    expect(one.map(({ task_key, verdict }) => `${task_key} ${verdict}`)).toEqual([
      'a within noise',
      'b within noise',
    ]);
    const many = taskChanges(Array.from({ length: 20 }, (_, index) => pair(`t${index}`, [0, 8], [8, 8])));
    expect(many.every(({ verdict }) => verdict === 'better')).toBe(true);
    // Tasks that never or always pass cannot show a change, so they do not weaken the claims for other tasks.
    const few = Array.from({ length: 8 }, (_, index) => pair(`t${index}`, [0, 4], [4, 4]));
    const idle = Array.from({ length: 100 }, (_, index) => pair(`u${index}`, [0, 4], [index % 2, 4]));
    expect(taskChanges([...few, ...idle]).filter(({ verdict }) => verdict === 'better')).toHaveLength(8);
    const both = taskChanges([
      pair('up', [0, 8], [8, 8]),
      pair('down', [8, 8], [0, 8]),
      pair('none', [0, 0], [8, 8]),
    ]);
    expect(both.map(({ task_key, verdict }) => `${task_key} ${verdict}`)).toEqual([
      'down worse',
      'up better',
    ]);
  });

  test('are rarely claimed for equal states', () => {
    const suite = madeUpSuite('s', ['e'], 100, 8);
    const first = madeUpState(suite, { run: 'a', step: 0, shift: {} });
    const claims = Array.from({ length: 40 }, (_, index) => {
      const same = madeUpState(suite, { run: 'a', step: index + 1, shift: {} });
      const { states } = compareStates(suite, [first, same], null);
      return states[1]?.versus?.tasks.filter(({ verdict }) => verdict !== 'within noise').length ?? 0;
    });
    expect(claims.filter((count) => count > 0).length).toBeLessThanOrEqual(4);
  });
});

test('below the curves stands on which environments the states were played', () => {
  const suite = madeUpSuite('s', ['tracker'], 4, 2);
  const states = [0, 1].map((step) => madeUpState(suite, { run: 'a', step, shift: {} }));
  const comparison = { name: 'n', project: 'p', suites: [compareStates(suite, states, null)], skipped: [] };
  expect(renderComparison(comparison)).toContain(
    '</figure><p class="quiet">All states were played on environments with the same tools',
  );
});
