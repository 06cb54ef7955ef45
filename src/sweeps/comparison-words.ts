// Words for a comparison's figures; the page and the terminal use the same.
import { percent, points, whole } from '../report/format.js';
import type { SkippedCheckpoint } from '../spec/records/sweep-record.js';
import { placeText } from './checkpoint-selection.js';
import {
  allEnvironments,
  regressions,
  type AlarmLevel,
  type Difference,
  type StateComparison,
  type SuiteComparison,
} from './comparison.js';
import type { Counted } from '../spec/pass-rate.js';
import type { TaskChange } from './task-changes.js';

export const shareText = (share: number | null): string => (share === null ? '–' : percent(share));

/** `+13.8 [+5.1, +22.0]`, in points. */
export function differenceText(difference: Difference | null): string {
  if (difference === null) return '–';
  const { estimate, low, high } = difference;
  return `${points(estimate)} [${points(low)}, ${points(high)}]`;
}

const othersNamed = 3;

/** `also own1@2, own2@2`; null if the state has only one place. */
export function alsoText({ also = [] }: StateComparison): string | null {
  if (also.length === 0) return null;
  const more = also.length - othersNamed;
  return `also ${also.slice(0, othersNamed).map(placeText).join(', ')}${more > 0 ? ` and ${whole(more)} more` : ''}`;
}

/** `100 tasks × 4 samples at temperature 1` */
export function suiteText({ tasks, samples, temperature }: SuiteComparison): string {
  return (
    `${whole(tasks)} ${tasks === 1 ? 'task' : 'tasks'} × ${samples} ${samples === 1 ? 'sample' : 'samples'} ` +
    `at temperature ${temperature}`
  );
}

/** The state with which the others are compared, as a noun phrase. */
export function referenceText({ reference }: SuiteComparison): string {
  if (reference === null) return 'nothing: no state was played';
  return `${placeText(reference)}, ${reference.named ? 'the baseline' : 'the first of the sweep'}`;
}

/** Why no line of the curves is parted, although an environment's server may change: a suite names its environments. */
export const environmentsText =
  'All states were played on environments with the same tools, version and reward rule. If a server changed while a run was trained, the ' +
  'run’s report says at which step.';

/** What is missing in the comparison; null if nothing is. */
export function gapText({ lacks_baseline }: SuiteComparison): string | null {
  return lacks_baseline ? 'the baseline was not played on this suite, so regressions cannot be found' : null;
}

/** How far to trust an alarm; null if no alarm can be raised. */
export function alarmRule({ regression }: SuiteComparison): string | null {
  if (regression === null) return null;
  return (
    `regressed: the 95 % interval lies below −${(regression * 100).toFixed(1)} points; a state that is worse by exactly this much raises a ` +
    'false alarm in 2.5 % of all comparisons; each state in each environment is one comparison'
  );
}

/** One line for each state that has become significantly worse than the sweep allows. */
export function alarmTexts(comparison: SuiteComparison): string[] {
  const allowed = ((comparison.regression ?? 0) * 100).toFixed(1);
  return regressions(comparison).map(({ place, scopes }) => {
    const where = scopes.map((scope) => (scope === allEnvironments ? 'all tasks' : scope)).join(', ');
    return `${placeText(place)} is significantly worse than the baseline, by more than ${allowed} points, on ${where}`;
  });
}

export const alarmWords: Record<Extract<AlarmLevel, 'regressed' | 'suspected'>, string> = {
  regressed: 'regressed',
  suspected: 'regressed, or chance',
};

export function skippedText({ run, step, reason }: SkippedCheckpoint): string {
  return `${step === null ? run : placeText({ run, step })} ${reason}`;
}

/** `3/4` */
export const countedText = ({ passed, graded }: Counted): string => `${passed}/${graded}`;

/** `3 better, 1 worse, 12 moved within noise` */
export function changesText(changes: readonly TaskChange[]): string {
  const count = (verdict: TaskChange['verdict']): number =>
    changes.filter((change) => change.verdict === verdict).length;
  return `${whole(count('better'))} better, ${whole(count('worse'))} worse, ${whole(count('within noise'))} moved within noise`;
}

/** With at least this many samples, a change of one task can be distinguished from chance by itself. */
const enoughSamples = 8;

/** Why few or no tasks are named as changed; null if there are enough samples. */
export function tooFewSamples({ samples }: SuiteComparison): string | null {
  if (samples >= enoughSamples) return null;
  const given = `With ${samples === 1 ? 'one sample' : `${samples} samples`} per task`;
  return samples < 4
    ? `${given}, a change of a single task cannot be distinguished from chance: compare environments and templates instead.`
    : `${given}, a change of a single task can hardly be distinguished from chance: compare environments and templates instead.`;
}

/** The largest k for which pass@k is reported; null if tasks have only one sample. */
export function largestK({ samples }: SuiteComparison): number | null {
  return samples > 1 ? samples : null;
}

export function largestPass({ all }: StateComparison): number | null {
  return all.pass_at_k.at(-1)?.value ?? null;
}

/** The newest state of each run, except the reference: the states for which single tasks are listed. */
export function newestStates({ states }: SuiteComparison): StateComparison[] {
  return states.filter(
    (one, index) =>
      one.versus !== null &&
      !states.slice(index + 1).some(({ run, versus }) => run === one.run && versus !== null),
  );
}
