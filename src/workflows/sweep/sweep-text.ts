// A sweep's name, and its text in the Temporal UI.
import { markdownTable, plain } from '../status/markdown.js';
import type { SweepStatus } from './sweep-messages.js';

const shownPairs = 8;

/** `eval/crm/nightly-2026-11-22T02:00:00Z` is sweep `crm/nightly-2026-11-22T02.00.00Z`: keys have no colon. */
export function sweepOfWorkflow(workflowId: string): string {
  return workflowId.replace(/^eval\//, '').replaceAll(':', '.');
}

export function sweepDetails(status: SweepStatus, workflowId: string): string {
  const { sweep, phase, pairs, done, episodes, running, waitsFor, failed, report, alarms, gaps } = status;
  const ended = ['completed', 'incomplete', 'cancelled'].includes(phase);
  const figures = markdownTable([
    [`**${plain(sweep)}**`, ''],
    ['phase', `**${phase}**`],
    ['evaluations', `**${done}** of ${pairs}`],
    ['episodes played', `${episodes.toLocaleString('en')}; earlier evaluations are reused`],
    ...(failed.length === 0 ? [] : [['not evaluated', String(failed.length)]]),
    ...(report === null ? [] : [['comparison', `\`${report}\``]]),
  ]);
  const lines = [
    ...(waitsFor === null ? [] : [`**waits for a node**: ${plain(waitsFor)}`]),
    ...alarms.slice(0, shownPairs).map((alarm) => `**regression**: ${plain(alarm)}`),
    ...gaps.slice(0, shownPairs).map((gap) => `**not compared**: ${plain(gap)}`),
    ...running
      .slice(0, shownPairs)
      .map(({ node, run, step, suite }) => `${plain(node)}: ${plain(run)} step ${step} on ${plain(suite)}`),
    ...failed
      .slice(0, shownPairs)
      .map(
        ({ run, step, suite, reason }) =>
          `**not evaluated**: ${plain(run)} step ${step} on ${plain(suite)}: ${plain(reason)}`,
      ),
    ...(failed.length > shownPairs ? [`and ${failed.length - shownPairs} more`] : []),
    ...(phase === 'incomplete' || phase === 'cancelled'
      ? ['start the sweep again under the same id: it plays only what is missing']
      : []),
    ...(ended
      ? []
      : [`end it and keep the finished evaluations: \`temporal workflow cancel -w ${plain(workflowId)}\``]),
  ].map((line) => `- ${line}`);
  return [figures, lines.join('\n')].filter((part) => part !== '').join('\n\n');
}
