// Shows the alerts of a run to people who have no Slack channel: as lines of a terminal and as the report's table.
import { alertWords, type AlertWriter } from '../rl/alert-words.js';
import { alertsOf, type AlertStanding } from '../rl/alerts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { UpdateRecord } from '../spec/records/update.js';
import { percent, timeSpan, whole } from './format.js';
import { escapeHtml, table } from './html.js';

const asIs = (text: string): string => text;
const writer: AlertWriter = { name: asIs, reason: asIs, percent, whole, timeSpan };
/** A terminal shows all alerts that still hold, and this many past ones. */
const pastShown = 3;
const stepsNamed = 3;

/** Alerts of the run's own steps. The parent's report shows the alerts of the parent's steps. */
export function alertsOfRun(
  { run, observed }: Pick<RunRecord, 'run' | 'observed'>,
  updates: readonly UpdateRecord[],
): AlertStanding[] {
  const own = updates.filter(({ identity }) => identity.run === run);
  return alertsOf(own, { startedAt: observed.started_at }).alerts;
}

/** `warning: Reward Collapsed since step 40: …`; `earlier: Gradient Norm (steps 3, 9)`. */
export function alertLines(alerts: readonly AlertStanding[]): string[] {
  const past = alerts.filter(({ holds }) => !holds);
  const lines = alerts
    .filter(({ holds }) => holds)
    .map((one) => {
      const { title, line } = alertWords(one.alert, writer);
      return `warning: ${title} since step ${one.step}: ${line}`;
    });
  for (const one of past.slice(0, pastShown))
    lines.push(`earlier: ${alertWords(one.alert, writer).title} (${inSteps(one.steps)})`);
  const more = past.length - pastShown;
  if (more > 0) lines.push(`earlier: ${more} more; the report has them`);
  return lines;
}

/** Null if there are no alerts. */
export function alertTable(alerts: readonly AlertStanding[]): string | null {
  if (alerts.length === 0) return null;
  return table(alerts, [
    [
      'alert',
      ({ alert, holds }) =>
        `<strong${holds ? ' class="missing"' : ''}>${escapeHtml(alertWords(alert, writer).title)}</strong>`,
    ],
    ['what', ({ alert }) => escapeHtml(alertWords(alert, writer).line)],
    ['began at', ({ steps }) => escapeHtml(inSteps(steps))],
    ['now', ({ holds }) => (holds ? 'holds' : 'ended')],
  ]);
}

function inSteps(steps: readonly number[]): string {
  if (steps.length === 1) return `step ${steps[0]}`;
  const named = steps.slice(-stepsNamed).join(', ');
  return steps.length <= stepsNamed ? `steps ${named}` : `${steps.length} times, last at steps ${named}`;
}
