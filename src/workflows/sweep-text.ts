// A sweep's name, and its text in the Temporal UI. Markdown: lists, because the UI's tables have no padding between their cells.
import type { SweepStatus } from './sweep-messages.js';

const shownPairs = 8;

/** `eval/crm/nightly-2026-11-22T02:00:00Z` is sweep `crm/nightly-2026-11-22T02.00.00Z`: keys have no colon. */
export function sweepOfWorkflow(workflowId: string): string {
  return workflowId.replace(/^eval\//, '').replaceAll(':', '.');
}

export function sweepDetails(status: SweepStatus): string {
  const { sweep, phase, pairs, done, episodes, running, waitsFor, failed, report, alarms } = status;
  const lines = [`**${sweep}** · ${phase} · ${done} of ${pairs} evaluations`, ''];
  for (const { node, run, step, suite } of running.slice(0, shownPairs))
    lines.push(`- ${node}: ${run} step ${step} on ${suite}`);
  if (waitsFor !== null) lines.push(`- waits: ${waitsFor}`);
  lines.push(
    `- ${episodes.toLocaleString('en')} episodes played; what was evaluated before is taken as it is`,
  );
  for (const alarm of alarms.slice(0, shownPairs)) lines.push(`- **regression**: ${alarm}`);
  for (const { run, step, suite, reason } of failed.slice(0, shownPairs))
    lines.push(`- **not evaluated**: ${run} step ${step} on ${suite}: ${reason}`);
  if (failed.length > shownPairs) lines.push(`- and ${failed.length - shownPairs} more`);
  if (phase === 'incomplete' || phase === 'cancelled')
    lines.push('- start the sweep again under the same id: it goes on with what is missing');
  if (report !== null) lines.push(`- comparison: \`${report}\``);
  return lines.join('\n');
}
