// Short texts about a running run: its figures in activity summaries and in one-line notes.
import type { RunStatus } from '../../activities/contracts.js';
import { endingText, nothingGraded, passRateText } from '../../spec/pass-rate.js';

/** How many recent steps predict the pace of the next ones. */
const pacedSteps = 8;

/** Same as `RunProgress.summary`. */
export function summaryOf(status: RunStatus, step: number, doing: string): string {
  const last = status.recent.at(-1);
  const evaluation = status.evaluations.at(-1);
  const figures = last ? headline(last) : null;
  const parts = [`step ${step}`, doing];
  if (last && figures) parts.push(`${figures} at ${last.step}`);
  else if (evaluation) parts.push(`pass@1 ${passRateText(evaluation.pass_at_1)} at ${evaluation.step}`);
  return parts.join(' · ');
}

/** The suite's name, and for `final` whether it was played before GRPO. */
export function suiteText({
  suite,
  before_grpo,
}: Pick<RunStatus['evaluations'][number], 'suite' | 'before_grpo'>): string {
  return before_grpo ? `${suite} (before GRPO)` : suite;
}

/** The one figure that shows best how a step went. */
export function headline({
  kind,
  metrics,
}: Pick<RunStatus['recent'][number], 'kind' | 'metrics'>): string | null {
  if (metrics['unapplied']) return 'not applied';
  const reward = metrics['reward/avg_raw_reward'];
  if (reward !== undefined) return `reward ${reward.toFixed(2)}`;
  if (kind === 'grpo') return nothingGraded;
  const loss = metrics['policy/final_loss'];
  return loss === undefined ? null : `loss ${loss.toFixed(3)}`;
}

/** When the run will end by `stopAfter`; null if no stop was requested or the run has ended. */
export function stopNote({
  step,
  phase,
  control,
}: Pick<RunStatus, 'step' | 'phase' | 'control'>): string | null {
  const { stopAfter } = control;
  if (stopAfter === null || phase === 'completed' || phase === 'stopped') return null;
  return stopAfter > step ? `stops after step ${stopAfter}` : 'stops at the next step boundary';
}

/** True if a pause at the next step boundary has no effect, because the run ends there. */
export function endsAtNextBoundary({
  phase,
  step,
  totalSteps,
  control,
}: Pick<RunStatus, 'phase' | 'step' | 'totalSteps' | 'control'>): boolean {
  if (totalSteps === 0) return false;
  const last = Math.min(totalSteps, control.stopAfter ?? Infinity);
  // Between two steps the next boundary is here: the last step is then not begun.
  const begun = phase === 'planning' || phase === 'collecting' || phase === 'updating';
  return step >= last || (begun && step + 1 >= last);
}

/** That a pause came too late; null if the run goes on, or nobody asked for one. */
export function latePauseNote({ phase, control }: Pick<RunStatus, 'phase' | 'control'>): string | null {
  const ended = phase === 'completed' || phase === 'stopped';
  return ended && control.paused ? `the pause came too late: the run ${phase} before it` : null;
}

/** One line for each recent signal that changed nothing. */
export function signalNotes({ signals = [] }: Pick<RunStatus, 'signals'>): string[] {
  return signals.map(({ name, reason, at }) => {
    const time = at.slice(0, 16).replace('T', ' ');
    return `the signal ${name} of ${time} UTC changed nothing: ${reason}`;
  });
}

/** Why the store still keeps data that the run no longer needs; null if the last collection did not fail. */
export function collectionNote({
  run,
  collectionFailure: failure,
}: Pick<RunStatus, 'run' | 'collectionFailure'>): string | null {
  if (!failure) return null;
  return (
    `the garbage collection after step ${failure.step} failed, so the store still keeps its data: ${failure.reason}. ` +
    `The run tries again at the next checkpoint; \`longhaul gc ${run}\` collects now`
  );
}

/** How an evaluation ended the run; null if no evaluation has reached the target. */
export function targetNote({
  step,
  evaluations,
  reachedTarget: target,
}: Pick<RunStatus, 'step' | 'evaluations' | 'reachedTarget'>): string | null {
  if (target === undefined) return null;
  const final = evaluations.find((one) => one.step === step && one.suite === 'final') ?? null;
  return endingText({ step, target, final });
}

/**
 * Time left, in seconds, at the usual pace of recent steps of the same kind: their median, because a step that spans an outage or a restart
 * says nothing about the next ones. An estimate: a run may reach its target earlier, and steps may become faster or slower.
 */
export function remainingSeconds({
  recent,
  totalSteps,
  step,
  control,
}: Pick<RunStatus, 'recent' | 'totalSteps' | 'step' | 'control'>): number {
  const kind = recent.at(-1)?.kind;
  const seconds = recent.filter((one) => one.kind === kind).map((one) => one.seconds);
  const sorted = seconds.slice(-pacedSteps).sort((one, other) => one - other);
  // The lower one of two middle values: an outage makes steps longer, never shorter.
  const usual = sorted[(sorted.length - 1) >> 1] ?? 0;
  return usual * Math.max(0, Math.min(totalSteps, control.stopAfter ?? Infinity) - step);
}
