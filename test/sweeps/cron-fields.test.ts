import { describe, expect, test } from 'vitest';
import { cronProblem } from '../../src/sweeps/cron-fields.js';

describe('a cron expression', () => {
  test.each([
    '0 3 * * *',
    '*/15 * * * *',
    '5,35 8-18/2 1-7 JAN-mar,12 mon-FRI',
    '0 0 29 2 *',
    '0 0 * * 7',
    '  0   3 * * * ',
    '@daily',
  ])('%s is one', (expression) => {
    expect(cronProblem(expression, 'Europe/Berlin')).toBeNull();
  });

  test.each([
    ['60 3 * * *', 'field 1 (minute) is "60": "60" must be 0 to 59'],
    ['0 24 * * *', 'field 2 (hour) is "24": "24" must be 0 to 23'],
    ['0 3 0 * *', 'field 3 (day of month) is "0": "0" must be 1 to 31'],
    ['0 3 * 13 *', 'field 4 (month) is "13": "13" must be 1 to 12, or jan to dec'],
    ['0 3 * * 8', 'field 5 (day of week) is "8": "8" must be 0 to 7, or sun to sat'],
    ['0 3 * * mon-fry', 'field 5 (day of week) is "mon-fry": "fry" must be 0 to 7, or sun to sat'],
    ['a 3 * * *', 'field 1 (minute) is "a": "a" must be 0 to 59'],
    ['-5 3 * * *', 'field 1 (minute) is "-5": "" must be 0 to 59'],
    ['1.5 3 * * *', 'field 1 (minute) is "1.5": "1.5" must be 0 to 59'],
    ['1,,2 3 * * *', 'an entry is empty'],
    ['*/0 3 * * *', 'the step "0" must be a whole number from 1 to 60'],
    ['*/61 3 * * *', 'the step "61" must be a whole number from 1 to 60'],
    ['*/5/5 3 * * *', 'it has more than one "/"'],
    ['5/10 3 * * *', 'a step follows * or a range: write 5-59/10'],
    ['0 3 * * FRI-MON', 'the range FRI-MON ends before it begins'],
    ['0 3 1-2-3 * *', '"1-2-3" is no range such as 1-31'],
    ['0 3 L * *', 'Temporal knows no "?", "L", "W" or "#"'],
    ['0 3 ? * *', 'Temporal knows no "?", "L", "W" or "#"'],
    ['0 3 * * 5#2', 'Temporal knows no "?", "L", "W" or "#"'],
    [
      '61 25 * * *',
      'field 1 (minute) is "61": "61" must be 0 to 59; field 2 (hour) is "25": "25" must be 0 to 23',
    ],
  ])('%s is none: %s', (expression, problem) => {
    expect(cronProblem(expression, 'UTC')).toContain(problem);
  });

  test.each([
    ['', 'has 0 fields'],
    ['daily', 'has one field'],
    ['0 3 * *', 'has 4 fields'],
    ['0 0 3 * * *', 'has 6 fields; seconds and years are not among them'],
    ['@midday', 'must be one of @hourly, @daily'],
    ['CRON_TZ=UTC 0 3 * * *', 'must not name a time zone: time_zone does'],
  ])('"%s" has another shape: %s', (expression, problem) => {
    expect(cronProblem(expression, 'UTC')).toContain(problem);
  });

  test('that never fires is told so, soon', () => {
    const begun = performance.now();
    expect(cronProblem('0 0 30 2 *', 'UTC')).toContain('never fires');
    expect(cronProblem('0 0 31 4,6,9,11 *', 'UTC')).toContain('never fires');
    expect(performance.now() - begun).toBeLessThan(10_000);
  });
});
