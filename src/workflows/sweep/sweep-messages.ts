// What the workflow `evalSweep` answers to queries and returns.
import { defineQuery } from '@temporalio/workflow';
import type { FailedPair, PairToDo } from '../../activities/sweep-contracts.js';
import { markdownTable, plain } from '../status/markdown.js';

export interface SweepStatus {
  sweep: string;
  phase: 'planning' | 'evaluating' | 'comparing' | 'completed' | 'incomplete' | 'cancelled';
  pairs: number;
  /** Number of pairs that have a result, from this sweep or from before. */
  done: number;
  /** Episodes that any try of this sweep has played; episodes from before are not counted. */
  episodes: number;
  running: (PairToDo & { node: string })[];
  /** Why no node works for the sweep; null if a node does. */
  waitsFor: string | null;
  failed: FailedPair[];
  report: string | null;
  alarms: string[];
  gaps: string[];
}

export interface SweepResult {
  sweep: string;
  /** `incomplete`: some pairs failed or could not be compared. Starting the sweep again under the same id tries only those. */
  ended: 'completed' | 'incomplete';
  pairs: number;
  episodes: number;
  failed: FailedPair[];
  report: string;
  alarms: string[];
  /** Texts about what could not be compared. */
  gaps: string[];
  /** The comparison as text, at most 4,000 characters. */
  table: string;
}

export const sweepStatusQuery = defineQuery<SweepStatus>('status');

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
