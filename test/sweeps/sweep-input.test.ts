import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { InvalidSpec } from '../../src/spec/invalid-spec.js';
import { secondsIn } from '../../src/spec/sweep-spec.js';
import { parseSweepSpec, readSweepFile } from '../../src/sweeps/sweep-input.js';

const smallest = () => ({
  name: 'trial',
  checkpoints: [{ run: 'a', latest: 1 }] as Record<string, unknown>[],
  suites: [{ name: 'held-out' }] as Record<string, unknown>[],
});

/** `path: problem; fix`, one per line, without the message's first line. */
function problems(input: unknown): string[] {
  try {
    parseSweepSpec(input);
  } catch (error) {
    if (!(error instanceof InvalidSpec)) throw error;
    return error.message
      .split('\n')
      .slice(1)
      .map((line) => line.trim());
  }
  return [];
}

describe('a sweep', () => {
  test('may leave out most keys; the filled-in sweep passes again unchanged, even through JSON', () => {
    const spec = parseSweepSpec(smallest());
    expect(spec).toEqual({
      name: 'trial',
      project: 'longhaul',
      checkpoints: [{ run: 'a', latest: 1, not_yet_evaluated: false }],
      suites: [{ name: 'held-out', split: 'held_out', samples: 1, temperature: 1 }],
      parallel: 2,
    });
    expect(parseSweepSpec(JSON.parse(JSON.stringify(spec)))).toEqual(spec);
  });

  test('is read from a file; the nightly example is complete', async () => {
    const path = fileURLToPath(new URL('../../presets/sweeps/nightly.yaml', import.meta.url));
    const spec = await readSweepFile(path);
    expect(spec.schedule).toEqual({
      cron: '0 3 * * *',
      time_zone: 'Europe/Berlin',
      jitter: '5m',
      overlap: 'skip',
      catch_up: '10m',
    });
    expect(parseSweepSpec(JSON.parse(JSON.stringify(spec)))).toEqual(spec);
    await expect(readSweepFile('/nowhere/x.yaml')).rejects.toThrow(
      /x\.yaml has one problem:\n {2}there is no such file/,
    );
    await expect(readSweepFile('/')).rejects.toThrow('it is a folder');
  });

  test('gets all of its problems at once, with paths and fixes', () => {
    expect(
      problems({
        ...smallest(),
        name: '.hidden',
        suits: [],
        suites: [],
        checkpoints: [{ run: 'a', lastest: 1 }],
        parallel: 0,
        schedule: { every: '0s', overlap: 'skipp', catch_up: '5s', jitter: 5 },
      }),
    ).toEqual([
      'name: must have 1 to 64 letters, digits, ".", "_" or "-", and not start with a dot; it is ".hidden"',
      'checkpoints[0].lastest: there is no key "lastest"; did you mean checkpoints[0].latest?',
      'suites: must be at least 1 entries, not []',
      'parallel: must be at least 1, not 0',
      'schedule.every: must be at least 1 s, not "0s"',
      'schedule.jitter: must be a time such as "90s", "10m", "6h" or "1d 12h", not 5',
      'schedule.overlap: must be "skip" or "buffer_one" or "buffer_all" or "cancel_other" or "terminate_other" or "allow_all", not "skipp"; did you mean "skip"?',
      'schedule.catch_up: must be at least 10 s, not "5s"',
      'suits: there is no key "suits"; did you mean suites?',
    ]);
  });

  test('has one way to choose checkpoints per entry', () => {
    const entry = (value: object) => problems({ ...smallest(), checkpoints: [{ run: 'a', ...value }] });
    expect(entry({ steps: [1], latest: 2 })).toEqual([
      'checkpoints[0]: has steps and latest at once; keep one of them, and put the others into entries of their own with the same run',
    ]);
    expect(entry({ range: { from: 20, to: 10 } })).toEqual([
      'checkpoints[0].range: ends at step 10, before it starts at step 20; give the smaller step as from',
    ]);
    expect(entry({ range: { every: 0 } })).toEqual(['checkpoints[0].range.every: must be at least 1, not 0']);
    expect(entry({ steps: [1, 1] })).toEqual(['checkpoints[0].steps: names step 1 twice; name it once']);
    expect(entry({ steps: [] })[0]).toContain('checkpoints[0].steps: must be at least 1 entries');
    expect(entry({ run: '../a' })[0]).toContain('checkpoints[0].run: must be the id of a run, or a pattern');
    expect(entry({})).toEqual([]);
  });

  test('cannot name steps of several runs, nor take its suites from a run that only a pattern selects', () => {
    expect(problems({ ...smallest(), checkpoints: [{ run: 'a-*', steps: [1] }] })).toEqual([
      'checkpoints[0].steps: cannot be given for several runs ("a-*"); name the run, or use range, latest, best or every',
      'data_of: is missing: "a-*" may match several runs, and suites take data, seed and settings from one run; name that run in data_of, or a baseline',
    ]);
    expect(problems({ ...smallest(), checkpoints: [{ run: '*' }], data_of: 'a' })).toEqual([]);
    expect(problems({ ...smallest(), checkpoints: [{ run: '*' }], baseline: { run: 'a', step: 0 } })).toEqual(
      [],
    );
  });

  test('has suites with different names, and cannot change the suites of runs', () => {
    const suites = (...list: object[]) => problems({ ...smallest(), suites: list });
    expect(suites({ name: 'easy' }, { name: 'hard' }, { name: 'Easy' })).toEqual([
      'suites[2].name: is "Easy", which suites[0] has already; give each suite its own name, or put both filters into one suite',
    ]);
    expect(suites({ name: 'interval' }, { name: 'final' })).toEqual([]);
    expect(suites({ name: 'final', samples: 4, max_tasks: 10, environments: ['tracker'] })).toEqual(
      ['environments', 'max_tasks', 'samples'].map((key): unknown =>
        expect.stringContaining(`suites[0].${key}: cannot be set: "final" is a suite of the runs themselves`),
      ),
    );
    expect(suites({ name: 'x', environments: ['a', 'a'] })[0]).toContain(
      'suites[0].environments: names a twice',
    );
    expect(suites({ name: 'x', environments: [] })[0]).toContain(
      'suites[0].environments: must be at least 1',
    );
    expect(suites({ name: 'x', samples: 0 })[0]).toContain('suites[0].samples: must be at least 1');
    expect(suites({ name: 'x', temperature: 0 })[0]).toContain('suites[0].temperature: must be more than 0');
  });

  test('has a baseline of one run and one step, with an allowed loss', () => {
    const spec = parseSweepSpec({ ...smallest(), baseline: { run: 'a~2', step: 10 } });
    expect(spec.baseline).toEqual({ run: 'a~2', step: 10, regression: 0.05 });
    expect(problems({ ...smallest(), baseline: { run: 'a*', step: 10 } })[0]).toContain(
      'must be the id of a run',
    );
    expect(problems({ ...smallest(), baseline: { run: 'a', step: 1, regression: 5 } })).toEqual([
      'baseline.regression: must be at most 1, not 5',
    ]);
  });
});

describe('a schedule', () => {
  const schedule = (value: object) => problems({ ...smallest(), schedule: value });

  test('has one kind of firing times', () => {
    expect(schedule({})).toEqual([
      'schedule: gives no time; give cron, such as "0 3 * * *", or every, such as "6h"',
    ]);
    expect(schedule({ cron: '0 3 * * *', every: '6h' })).toEqual([
      'schedule: has cron and every at once; keep one of them',
    ]);
    expect(schedule({ every: 'daily' })[0]).toContain('schedule.every: must be a time such as');
    expect(schedule({ every: 0 })[0]).toContain('schedule.every: must be a time such as');
    expect(schedule({ every: '1h', jitter: '1h' })).toEqual([
      'schedule.jitter: is 1h, which is not less than the 1h between firings; make it shorter',
    ]);
  });

  test('accepts time zones by name, and suggests the zone of a city', () => {
    expect(schedule({ cron: '0 3 * * *', time_zone: 'Berlin' })).toEqual([
      'schedule.time_zone: is "Berlin", which is not a time zone; did you mean Europe/Berlin?',
    ]);
    expect(schedule({ cron: '0 3 * * *', time_zone: 'Europe/Berlim' })[0]).toContain(
      'did you mean Europe/Berlin?',
    );
    expect(schedule({ cron: '0 3 * * *', time_zone: '+02:00' })[0]).toContain('is not a time zone');
    expect(schedule({ cron: '0 3 * * *', time_zone: 'America/New_York' })).toEqual([]);
    expect(schedule({ every: '1h', time_zone: 'America/New_York' })[0]).toContain('has no effect on every');
  });

  test('says what is wrong with a cron expression', () => {
    expect(schedule({ cron: '0 25 * * *' })).toEqual([
      'schedule.cron: is "0 25 * * *", which is not a cron expression (Invalid value for hour: 25): write five fields: minute, hour, ' +
        'day of month, month, day of week, such as "0 3 * * *" for each day at 3:00',
    ]);
  });
});

test('accepts durations in whole seconds, of days, hours, minutes and seconds', () => {
  expect(['90s', '10m', ' 6h ', '1d 12h', '1h30m', '0s'].map(secondsIn)).toEqual([
    90, 600, 21_600, 129_600, 5_400, 0,
  ]);
  expect(['', '10', 'm', '1.5h', '-1s', '1w', '10 m s'].map(secondsIn)).toEqual(Array(7).fill(null));
});
