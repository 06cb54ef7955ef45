// What people read of a run while it goes, in words: its text in the Temporal UI, and the figures in activities' summaries.
import type { RunOutline, RunStatus } from '../activities/contracts.js';
import { budgetNotes } from './budget.js';
import { faultNote } from './fault-note.js';
import { settingNotes } from './hyperparameters.js';

/** Markdown: lists, because the UI's tables have no padding between their cells. `outline`: null until the run is opened. */
export function detailsOf(
  status: RunStatus,
  outline: RunOutline | null,
  checkpointTrouble: string | null,
): string {
  const what = outline ? ` · ${outline.project}, ${outline.model}` : '';
  const lines = [
    `**${status.run}** · ${status.phase} · step ${Math.max(status.step, 0)} of ${status.totalSteps}${what}`,
    '',
  ];
  if (status.blocked)
    lines.push(`- **blocked**: ${status.blocked.reason}`, `- **way on**: ${status.blocked.remedy}`);
  if (status.phase === 'paused') lines.push(`- paused; go on with \`longhaul resume ${status.run}\``);
  const stop = stopNote(status);
  if (stop) lines.push(`- ${stop}`);
  lines.push(
    ...(status.lineage ? [`- goes on from ${status.lineage.run} after step ${status.lineage.step}`] : []),
    `- node: ${[status.node ?? 'none', ...status.sharingNodes].join(', ')}`,
    ...(status.waitsFor === null ? [] : [`- waits: ${status.waitsFor}`]),
    `- last checkpoint: ${status.lastCheckpoint === null ? 'none yet' : `step ${status.lastCheckpoint}`}`,
  );
  if (checkpointTrouble) lines.push(`- ${checkpointTrouble}`);
  lines.push(...budgetNotes(status.budget ?? []).map((note) => `- ${note}`));
  lines.push(...settingNotes(status.control).map((note) => `- ${note}`));
  if (status.sampleSeconds > 0) {
    const perSecond = Math.round(status.tokens / status.sampleSeconds);
    lines.push(
      `- ${status.tokens.toLocaleString('en')} tokens sampled since the run was started, ${perSecond.toLocaleString('en')} a second`,
    );
  }
  const faults = faultNote(status.faults ?? {});
  if (faults) lines.push(`- ${faults}`);
  if (status.report) lines.push(`- report: \`${status.report}\``);
  if (status.evaluations.length > 0) lines.push('', '**Evaluations on held-out tasks**', '');
  for (const { step, suite, pass_at_1, graded } of status.evaluations.slice(-8)) {
    lines.push(`- step ${step} · ${suite} · pass@1 **${percent(pass_at_1)}** of ${graded}`);
  }
  if (status.recent.length > 0) lines.push('', '**Last steps**', '');
  for (const { step, kind, seconds, metrics } of status.recent.slice(-10).reverse()) {
    lines.push(`- step ${step} · ${kind} · ${seconds.toFixed(1)} s · ${headline(metrics) ?? 'no figures'}`);
  }
  return lines.join('\n');
}

/** As `RunProgress.summary`. */
export function summaryOf(status: RunStatus, step: number, doing: string): string {
  const last = status.recent.at(-1);
  const evaluation = status.evaluations.at(-1);
  const figures = last ? headline(last.metrics) : null;
  const parts = [`step ${step}`, doing];
  if (last && figures) parts.push(`${figures} at ${last.step}`);
  else if (evaluation) parts.push(`pass@1 ${percent(evaluation.pass_at_1)} at ${evaluation.step}`);
  return parts.join(' · ');
}

/** The one figure that says how a step went. */
export function headline(metrics: Record<string, number>): string | null {
  if (metrics['unapplied']) return 'not applied';
  const reward = metrics['reward/avg_raw_reward'];
  if (reward !== undefined) return `reward ${reward.toFixed(2)}`;
  const loss = metrics['policy/final_loss'];
  return loss === undefined ? null : `loss ${loss.toFixed(3)}`;
}

/** When the run ends by `stopAfter`; null where nobody asked for it, and once the run has ended. */
export function stopNote({
  step,
  phase,
  control,
}: Pick<RunStatus, 'step' | 'phase' | 'control'>): string | null {
  const { stopAfter } = control;
  if (stopAfter === null || phase === 'completed' || phase === 'stopped') return null;
  return stopAfter > step ? `stops after step ${stopAfter}` : 'stops at the next step boundary';
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
