import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { withNote, withPicture } from '../../../src/integrations/slack/blocks.js';
import { eventMessage, type LaterEvent } from '../../../src/integrations/slack/event-message.js';
import { code, link, moment, plain, size, timeSpan } from '../../../src/integrations/slack/mrkdwn.js';
import type {
  EvaluationDone,
  RunEnded,
  RunStarted,
  RunStatusLine,
} from '../../../src/integrations/slack/run-event.js';
import type { Alert } from '../../../src/rl/alerts.js';
import { statusMessage } from '../../../src/integrations/slack/status-message.js';
import { blockComplaints } from '../../support/servers/slack-rules.js';
import { checkpoint, completed, evaluation, paused, started, status, toolErrors } from './threads.js';

const files = { usable: () => true };

// The worst names that can come in: of any length, with Slack's markup, control characters and halves of surrogate pairs.
const nasty = fc.constantFrom(
  '<!channel>',
  '<@U123>',
  '&amp;',
  '<https://x.example|click>',
  '`',
  '*',
  '\u0000',
  '\n',
  '\ud83d',
  '\u202e',
  '\u{1F600}',
  '',
);
const name = fc
  .array(
    fc.oneof(
      nasty,
      fc.string({ unit: 'grapheme', maxLength: 400 }),
      fc.string({ unit: 'binary', maxLength: 50 }),
    ),
    {
      maxLength: 30,
    },
  )
  .map((parts) => parts.join(''));
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: null });
const number = fc.oneof(fc.double(), fc.nat());
const level = fc.record({ reward: number, pass_at_1: number });
const links = fc.array(
  fc.record({ label: name, url: fc.oneof(fc.webUrl({ withQueryParameters: true }), name) }),
  { maxLength: 30 },
);
const happening = { id: name, at: fc.oneof(fc.constant('2026-05-01T10:00:00Z'), name) };

const alert: fc.Arbitrary<Alert> = fc.oneof(
  fc.record({ about: fc.constant('tool_error_rate'), environment: name, rate: number, threshold: number }),
  fc.record({ about: fc.constant('no_learning_signal'), steps: number, signalRatio: number }),
  fc.record({ about: fc.constant('reward_collapsed'), reward: number, best: number, steps: number }),
  fc.record({
    about: fc.constant('reward_drift'),
    environment: name,
    steps: number,
    now: level,
    best: level,
  }),
  fc.record({ about: fc.constant('entropy_gone'), entropy: number, highest: number, steps: number }),
  fc.record({ about: fc.constant('gradient_norm'), norm: number, usual: number }),
  fc.record({ about: fc.constant('update_skipped'), reason: name }),
  fc.record({
    about: fc.constant('unknown_outcomes'),
    environment: maybe(name),
    rate: number,
    threshold: number,
  }),
  fc.record({ about: fc.constant('node_lost'), node: name, detail: maybe(name) }),
  fc.record({ about: fc.constant('budget_near'), resource: name, spent: number, limit: number }),
  fc.record({ about: fc.constant('stalled'), seconds: number, usualSeconds: number }),
);

const anyEvent = fc.oneof(
  fc.record({
    ...happening,
    kind: fc.constant('checkpoint'),
    step: number,
    place: name,
    sizeBytes: number,
  }),
  fc.record({
    ...happening,
    kind: fc.constant('evaluation'),
    step: number,
    suite: name,
    passAt1: maybe(number),
    ...{ largest: fc.option(fc.record({ k: number, rate: number }), { nil: undefined }) },
    before: maybe(fc.record({ step: number, passAt1: maybe(number) })),
    graded: number,
    unknown: number,
    environments: fc.array(
      fc.record({
        environment: name,
        passAt1: maybe(number),
        toolErrorRate: maybe(number),
        graded: number,
        unknown: number,
      }),
      { maxLength: 100 },
    ),
    chart: fc.constant(new Uint8Array(4)),
  }),
  fc.record({ ...happening, kind: fc.constant('alert'), step: number, alert }),
  fc.record({
    ...happening,
    kind: fc.constant('paused'),
    reason: maybe(name),
    resumeWith: name,
  }),
  fc.record({ ...happening, kind: fc.constant('resumed') }),
  fc.record({
    ...happening,
    kind: fc.constantFrom('blocked', 'failing'),
    step: maybe(number),
    reason: name,
    remedy: name,
  }),
  fc.record({
    ...happening,
    kind: fc.constantFrom('completed', 'failed', 'cancelled'),
    step: maybe(number),
    steps: number,
    passAt1: maybe(name),
    seconds: number,
    spend: name,
    reason: maybe(name),
    resumeWith: maybe(name),
    links,
  }),
) as fc.Arbitrary<LaterEvent>;

const anyStart = fc.record({
  ...happening,
  kind: fc.constant('started'),
  run: name,
  project: name,
  cluster: name,
  task: name,
  model: name,
  modality: name,
  steps: number,
  links,
  who: name,
  from: maybe(fc.record({ run: name, step: number })),
}) as fc.Arbitrary<RunStarted>;

const anyStatus = fc.record({
  at: name,
  step: number,
  steps: number,
  phase: name,
  mood: fc.constantFrom('running', 'waiting', 'completed', 'failed', 'cancelled'),
  passAt1: maybe(fc.record({ step: number, value: maybe(number) })),
  etaSeconds: maybe(number),
  spend: name,
  note: maybe(name),
  resumeWith: maybe(name),
}) as fc.Arbitrary<RunStatusLine>;

function expectTaken({ text, blocks }: { text: string; blocks: unknown[] }): void {
  expect(blockComplaints(JSON.parse(JSON.stringify(blocks)), files)).toEqual([]);
  expect(text.length).toBeGreaterThan(0);
  expect(text.length).toBeLessThanOrEqual(4000);
  // The only markup is Longhaul's own: links to web pages, and dates.
  const all = JSON.stringify([text, blocks]);
  expect(all.replace(/<(https?:[^<>|]*|!date\^\d+\^[^<>|]*)\|[^<>]*>/g, '')).not.toMatch(/[<>]/);
  expect(all.replace(/&(amp|lt|gt);/g, '')).not.toContain('&');
  expect(encodeURIComponent(text)).not.toBe('');
}

describe('Slack accepts every message, whatever names it contains', () => {
  test('of an event', () => {
    fc.assert(
      fc.property(name, anyEvent, (run, event) => {
        const message = eventMessage(run, event);
        expectTaken(message);
        expectTaken(withNote(message, 'Chart left out.'));
        if (message.picture) expectTaken(withPicture(message, message.picture, 'F000000001'));
      }),
      { numRuns: 300 },
    );
  });

  test('of a run’s state', () => {
    fc.assert(
      fc.property(
        anyStart,
        maybe(anyStatus),
        maybe(fc.record({ count: fc.nat(), reason: name })),
        (...given) => {
          expectTaken(statusMessage(...given));
        },
      ),
      { numRuns: 300 },
    );
  });
});

test('text is cut before it is escaped, so no entity is cut in two', () => {
  fc.assert(
    fc.property(name, fc.integer({ min: 3, max: 60 }), (text, limit) => {
      const sent = plain(text, limit);
      expect(sent.length).toBeGreaterThan(0);
      expect(sent.length).toBeLessThanOrEqual(limit);
      expect(sent.replace(/&(amp|lt|gt);/g, '')).not.toMatch(/[&<>]/);
    }),
  );
  expect(plain('a & b < c', 60)).toBe('a &amp; b &lt; c');
  expect(plain('<<<<<', 12)).toBe('&lt;&lt;…');
  expect(plain(' \n\t ', 10)).toBe('–');
  expect(code('rm `all`')).toBe("`rm 'all'`");
});

test('links lead only to web pages, and contain no password', () => {
  expect(link({ label: 'W&B', url: 'https://wandb.ai/a/b?x=1&y=2' })).toBe(
    '<https://wandb.ai/a/b?x=1&amp;y=2|W&amp;B>',
  );
  for (const url of [
    'javascript:alert(1)',
    'file:///etc/passwd',
    'https://user:pw@example.org/',
    'not a url',
  ])
    expect(link({ label: 'x', url })).toBeNull();
});

test('figures are readable', () => {
  expect([size(0), size(999), size(1_234_000_000), size(12_000)]).toEqual([
    '0 B',
    '999 B',
    '1.2 GB',
    '12.0 KB',
  ]);
  expect([timeSpan(40), timeSpan(3_540), timeSpan(7_860), timeSpan(273_600)]).toEqual([
    '40 s',
    '59 min',
    '2 h 11 min',
    '3 d 4 h',
  ]);
  expect(moment('2026-05-01T10:00:00Z')).toBe(
    '<!date^1777629600^{date_short_pretty} {time}|2026-05-01 10:00 UTC>',
  );
});

describe('messages contain', () => {
  const text = (event: unknown) => JSON.stringify(eventMessage('nightly', event as LaterEvent).blocks);

  test('the results of an evaluation', () => {
    const blocks = text(evaluation(120));
    expect(blocks).toContain('*Evaluation `final`* — step 120');
    expect(blocks).toContain('*pass@1 62.5 %* (+2.5 points since step 110) · 400 graded, 3 unknown');
    expect(blocks).toContain('• `crm`: 62.0 % of 100, 4.0 % tool errors, 3 unknown');
  });

  test('no figure of an evaluation without grades, but say so', () => {
    const done = evaluation(120) as EvaluationDone;
    const environments = [{ ...done.environments[0]!, passAt1: null, graded: 0, unknown: 100 }];
    const ungraded = { ...done, passAt1: null, graded: 0, unknown: 100, environments };
    const blocks = text(ungraded);
    expect(blocks).toContain('*pass@1 – (no outcome was graded)* · 0 graded, 100 unknown');
    expect(blocks).toContain('• `crm`: – (no outcome was graded), 4.0 % tool errors, 100 unknown');
    expect(JSON.stringify(eventMessage('nightly', { ...ungraded, chart: new Uint8Array(1) }))).not.toContain(
      '0.0 %',
    );
    const after = text({ ...done, before: { step: 110, passAt1: null } });
    expect(after).toContain('*pass@1 62.5 %* · 400 graded');
    const standing = { ...status(120), passAt1: { step: 120, value: null } };
    expect(JSON.stringify(statusMessage(started, standing, null))).toContain(
      '– (step 120: no outcome was graded)',
    );
  });

  test('what is wrong, in SkyRL’s words', () => {
    expect(text(toolErrors(120))).toContain(':warning: *Tool Error Rate Alert* — step 120 (run: `nightly`)');
    expect(text(toolErrors(120))).toContain('• `crm`: 62.0 % tool error rate (threshold: 50.0 %)');
  });

  test('how to continue', () => {
    expect(text(paused)).toContain('Resume with `longhaul resume nightly`');
    const dying = { reason: 'the engine exited five times', remedy: 'The run tries it again by itself' };
    const failing = text({ kind: 'failing', id: 'failing.40.0', at: paused.at, step: 40, ...dying });
    expect(failing).toMatch(/Failing.*step 40[^]*exited five times[^]*tries it again by itself/);
    const failed: RunEnded = {
      ...(completed as RunEnded),
      kind: 'failed',
      reason: 'no node is left',
      resumeWith: 'longhaul train nightly',
    };
    expect(text(failed)).toContain('Continue with `longhaul train nightly`');
    expect(text(failed)).toContain('no node is left');
  });

  test('the saved checkpoint', () => {
    expect(text(checkpoint(120))).toContain('*Checkpoint* — step 120 · 1.2 GB');
  });

  test('the run’s current state', () => {
    const blocks = JSON.stringify(statusMessage(started, status(120), null).blocks);
    for (const part of [
      '120 of 500',
      '31.0 % (step 0)',
      'about 6 h 20 min',
      '1.20 of 50 USD',
      'Started by robin',
    ])
      expect(blocks).toContain(part);
  });
});
