import { describe, expect, test } from 'vitest';
import { cronProblem, cronValues } from '../../src/sweeps/cron-fields.js';

describe('a cron expression', () => {
  test.each([
    '0 3 * * *',
    '*/15 * * * *',
    '5,35 8-18/2 1-7 JAN-mar,12 mon-FRI',
    '0 0 29 2 *',
    '0 0 * * 7',
    '  0   3 * * * ',
    '@daily',
    '@midnight',
  ])('%s is valid', (expression) => {
    expect(cronProblem(expression, 'Europe/Berlin')).toBeNull();
  });

  test.each([
    [
      '60 3 * * *',
      'is "60 3 * * *", which is not a cron expression (Invalid value for minute: 60): write five fields',
    ],
    ['0 24 * * *', 'Invalid value for hour: 24'],
    ['0 3 0 * *', 'Invalid value for day'],
    ['0 3 * 13 *', 'Invalid value for month'],
    ['0 3 * * 8', 'Invalid value for dayOfWeek: 8'],
    ['0 3 * * mon-fry', 'configuration entry 5'],
    ['1.5 3 * * *', 'configuration entry 1 (1.5)'],
    ['1,,2 3 * * *', 'is empty'],
    ['*/0 3 * * *', 'illegal stepping: 0'],
    ['*/61 3 * * *', 'steps cannot be greater'],
    ['5/10 3 * * *', 'Use wildcard (*/step) or range'],
    ['0 3 * * FRI-MON', 'From value is larger'],
    ['', 'which is not a cron expression'],
    ['daily', 'which is not a cron expression'],
    ['0 3 * *', 'which is not a cron expression'],
    ['0 0 3 * * *', 'has 6 parts): write five fields'],
    ['@midday', 'which is not a cron expression'],
    ['CRON_TZ=UTC 0 3 * * *', 'which is not a cron expression'],
  ])('"%s" is not valid: %s', (expression, problem) => {
    expect(cronProblem(expression, 'UTC')).toContain(problem);
  });

  // croner accepts these; Temporal refuses them, or reads them differently.
  test.each(['0 3 L * *', '0 3 ? * *', '0 3 15W * *', '0 3 * * FRIL', '0 3 * * 5#2', '0 3 1 * +1'])(
    '%s has a character that Temporal refuses',
    (expression) => {
      expect(cronProblem(expression, 'UTC')).toContain('Temporal does not support');
    },
  );

  test('gives the values that each field allows', () => {
    expect(cronValues(' 5,35 8-12/2 1-3 JAN-mar,12 mon,7 ')).toEqual([
      [5, 35],
      [8, 10, 12],
      [1, 2, 3],
      [1, 2, 3, 12],
      [0, 1],
    ]);
    expect(cronValues('@weekly').map((values) => values.length)).toEqual([1, 1, 31, 12, 1]);
  });

  test('is refused quickly if it never fires', () => {
    const begun = performance.now();
    expect(cronProblem('0 0 30 2 *', 'UTC')).toContain('never fires');
    expect(cronProblem('0 0 31 4,6,9,11 *', 'UTC')).toContain('never fires');
    expect(performance.now() - begun).toBeLessThan(10_000);
  });
});
