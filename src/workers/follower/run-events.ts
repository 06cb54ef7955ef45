// The events of a run, read from its records in pages, with a cursor. The same records give the same events with the same ids. A page that
// was delivered only in part is read again, so followers skip the ids that they have delivered.
import type {
  AlertRaised,
  EnvironmentPassRate,
  EvaluationDone,
  Link,
  RunEnded,
  RunEvent,
  RunStarted,
} from '../../integrations/slack/run-event.js';
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import {
  endingText,
  largestPassAtK,
  nothingGraded,
  type PassRate,
  passRateText,
} from '../../spec/pass-rate.js';
import type { OwnerRecord } from '../../spec/records/run-records.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { plannedSteps, reachesTarget, runSuites } from '../../spec/schedule.js';
import { sha256Hex } from '../../base/sha256.js';
import { checkpointHome } from '../../store/runs/checkpoints.js';
import { foldControl } from '../../store/runs/control-records.js';
import { projectFaults } from '../../store/runs/fault-figures.js';
import {
  checkpointFolder,
  checkpointManifestKey,
  checkpointsFolder,
  nameOfRun,
  ownersFolder,
} from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { inParallel } from '../../base/in-parallel.js';
import { readIfWhole, readSequence } from '../../store/records/records.js';
import { evaluationPointId } from '../../integrations/tracking/metric-point.js';
import {
  type AlertWatch,
  nothingWatched,
  type RaisedAlert,
  restAside,
  stalledSince,
  watchStep,
} from '../../rl/alerts.js';
import { errorShare } from '../../rl/metrics.js';
import { ofOwnStart, stepsAskedAt } from './asked-evaluations.js';
import {
  beginningOf,
  evaluationsOf,
  heldAfter,
  openView,
  type RunView,
  stateAfter,
  type StepEvaluation,
  updatesBehind,
} from './run-view.js';

/** Number of evaluations that a cursor remembers, to compare each with the previous one and to draw charts. */
const maxRemembered = 200;
/** How many steps with a missing evaluation are checked again at each read (`newestMissing`) and at the end (`mostMissing`). */
const newestMissing = 4;
const mostMissing = 256;

/** An evaluation that was delivered. Rates are shares. */
export interface ReportedEvaluation {
  id: string;
  step: number;
  suite: string;
  passAt1: PassRate;
  graded: number;
  environments: Record<string, PassRate>;
}

/** What was delivered, and what the next step is compared with. Plain data, stored by the follower. */
export interface EventCursor {
  started: boolean;
  /** Last step delivered; null before the first. */
  step: number | null;
  control: number;
  /** Last checkpoint delivered; −1 before the first. */
  checkpoint: number;
  evaluations: ReportedEvaluation[];
  watch: AlertWatch;
  /** Step after which a standstill of the run was delivered. */
  stalled: number | null;
  /** Number of the start for which the end was delivered; 0 before the first. */
  ended: number;
  /** The execution that ended. If that start is reset, another execution ends it again. */
  endedRunId: string | null;
}

export const newEventCursor: EventCursor = {
  started: false,
  step: null,
  control: 0,
  checkpoint: -1,
  evaluations: [],
  watch: nothingWatched,
  stalled: null,
  ended: 0,
  endedRunId: null,
};

/** How the newest workflow of a run ended, according to Temporal: no record shows it. */
export interface RunEnding {
  /** First execution's run id of the start that ended: by the time of delivery, another start may drive the run. */
  firstRunId: string;
  /** Id of the execution that ended. */
  runId: string;
  how: RunEnded['kind'];
  /** ISO 8601. */
  at: string;
  reason: string | null;
}

/** Facts that no record holds. */
export interface EventContext {
  links: Link[];
  modality: string;
  /** Time of reading, ISO 8601. */
  now: string;
  /** Null while the run continues. */
  ending: RunEnding | null;
  /** PNG that shows a suite's evaluations by step; null if there are none. */
  chart: (evaluations: readonly ReportedEvaluation[]) => Promise<Uint8Array | null>;
}

interface EventPage {
  /** Ordered by time, except that `started` comes first: an evaluation adopted from another run may be older than the run. */
  events: RunEvent[];
  /** The position after all these events. */
  cursor: EventCursor;
  /** True if the caller should read the next page at once, even if this page has no events. */
  more: boolean;
}

export async function readRunEvents(
  store: ObjectStore,
  run: string,
  cursor: EventCursor,
  context: EventContext,
): Promise<EventPage> {
  const view = await openView(store, run);
  const owners = await readSequence(store, ownersFolder(run), 'owner');
  const [first] = owners;
  // Without an owner, the event `started` has nobody to name.
  if (!first) return { events: [], cursor, more: false };
  const page: Page = { view, owners, context, events: [], cursor: { ...cursor } };
  const started = cursor.started ? [] : [startedEvent(page, first)];
  page.cursor.started = true;
  const wholeHistory = await addSteps(page);
  if (wholeHistory) await addOverdue(page);
  addControl(page);
  await addCheckpoints(page);
  if (wholeHistory) addStandstill(page);
  const ordered = page.events.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  // The end comes last, so it is added only when no page is left.
  const end = wholeHistory ? endOf(page) : null;
  return {
    events: [...started, ...ordered, ...(end ? [end] : [])],
    cursor: page.cursor,
    more: !wholeHistory,
  };
}

interface Page {
  view: RunView;
  owners: readonly OwnerRecord[];
  context: EventContext;
  events: RunEvent[];
  cursor: EventCursor;
}

function startedEvent({ view, context }: Page, owner: OwnerRecord): RunStarted {
  const { run, spec, lineage, observed } = view.record;
  return {
    kind: 'started',
    id: 'started',
    at: observed.started_at,
    run,
    project: spec.project,
    cluster: `${owner.address}, namespace ${owner.namespace}`,
    task: spec.environments.map(({ env_key }) => env_key).join(', ') || view.record.dataset.name,
    model: spec.model.name,
    modality: context.modality,
    steps: plannedSteps(view.record.spec).total,
    links: context.links,
    who: owner.observed.by,
    from: lineage && { run: lineage.run, step: lineage.step },
  };
}

/** Adds the events of the next steps; returns true if no further step is committed. */
async function addSteps(page: Page): Promise<boolean> {
  const { view, cursor, events } = page;
  const position = cursor.step ?? beginningOf(view.record);
  let held = await stateAfter(view, position);
  if (!held) return true;
  const updates = await updatesBehind(view, position);
  // An owner that appears after this read has planned none of these steps.
  const owners =
    updates.length > 0
      ? await readSequence(view.store, ownersFolder(view.record.run), 'owner', page.owners)
      : page.owners;
  await addEvaluations(page, await evaluationsOf(view, held, isReported(cursor)));
  const { nodesLost, committedAt } = cursor.watch;
  const before = {
    step: position,
    at: committedAt ?? view.record.observed.started_at,
    figures: { 'ft/restarts/node_lost': nodesLost },
  };
  for (const update of await projectFaults(view.store, { ...view, owners }, before, updates)) {
    const budget = await ofOwnStart(view.store, update, owners, (owner) => owner?.observed.budget);
    const settings = { startedAt: view.record.observed.started_at, budget };
    const { alerts, watch } = watchStep(cursor.watch, update, settings);
    events.push(...alerts.map(alertEvent));
    [cursor.watch, cursor.step] = [watch, update.identity.step];
    held = heldAfter(held, update);
    await addEvaluations(page, await evaluationsOf(view, held, isReported(cursor)));
  }
  return updates.length === 0;
}

/** Adds evaluations that were not yet stored when their step was read: for the newest steps, and at the run's end for many more steps. */
async function addOverdue(page: Page): Promise<void> {
  const { view, cursor, context } = page;
  const reported = new Set(cursor.evaluations.map(({ step }) => step));
  const oldest = cursor.evaluations[0]?.step;
  // Evaluations that the cursor no longer remembers were delivered.
  const first = cursor.evaluations.length < maxRemembered ? beginningOf(view.record) : (oldest ?? 0) + 1;
  const missing = stepsAskedAt(view, first, cursor.step ?? beginningOf(view.record))
    .filter((step) => !reported.has(step))
    .slice(context.ending ? -mostMissing : -newestMissing);
  const found = await inParallel(missing, async (step) => {
    const held = await stateAfter(view, step);
    return held ? evaluationsOf(view, held, isReported(cursor)) : [];
  });
  await addEvaluations(page, found.flat());
}

function isReported({ evaluations }: EventCursor): (steps: readonly number[], suite: string) => boolean {
  const reported = new Set(evaluations.map(({ id }) => id));
  return (steps, suite) =>
    steps.some((step) => runSuites.some((name) => reported.has(evaluationPointId(step, name, suite))));
}

async function addEvaluations(
  { cursor, events, context }: Page,
  found: readonly StepEvaluation[],
): Promise<void> {
  for (const { step, result } of found) {
    const id = evaluationPointId(step, result.suite_name, result.suite);
    if (cursor.evaluations.some((one) => one.id === id)) continue;
    const shares = Object.entries(result.environments).map(([name, { pass_at_1 }]) => [name, pass_at_1]);
    const one: ReportedEvaluation = {
      id,
      step,
      suite: result.suite_name,
      passAt1: result.pass_at_1,
      graded: result.graded,
      environments: Object.fromEntries(shares) as Record<string, PassRate>,
    };
    const before = cursor.evaluations.findLast((other) => other.suite === one.suite && other.step < step);
    cursor.evaluations = [...cursor.evaluations, one].sort((a, b) => a.step - b.step).slice(-maxRemembered);
    const chart = await context.chart(cursor.evaluations.filter(({ suite }) => suite === one.suite));
    events.push(evaluationEvent(step, result, before ?? null, chart));
  }
}

function evaluationEvent(
  step: number,
  result: EvaluationResult,
  before: ReportedEvaluation | null,
  chart: Uint8Array | null,
): EvaluationDone {
  const { suite_name: suite, pass_at_1, graded, unknown, observed } = result;
  const largest = largestPassAtK(result);
  return {
    kind: 'evaluation',
    id: evaluationPointId(step, suite, result.suite).replace(/^eval\./, 'evaluation.'),
    at: observed.committed_at,
    step,
    suite,
    passAt1: pass_at_1,
    ...(largest === null ? {} : { largest }),
    before: before && { step: before.step, passAt1: before.passAt1 },
    graded,
    unknown,
    environments: Object.entries(result.environments).map(([environment, one]): EnvironmentPassRate => {
      const calls = one.mean_tool_calls * (one.graded + one.unknown);
      return {
        environment,
        passAt1: one.pass_at_1,
        toolErrorRate: errorShare(one.tool_errors, calls),
        graded: one.graded,
        unknown: one.unknown,
      };
    }),
    chart,
  };
}

function addControl({ view, cursor, events }: Page): void {
  for (const { n, change, observed } of view.control) {
    if (n <= cursor.control) continue;
    cursor.control = n;
    const { at } = observed;
    if (change.kind === 'pause') {
      const reason = change.now ? 'at once: the episodes in flight are cut off' : null;
      events.push({ kind: 'paused', id: `paused.${n}`, at, reason, resumeWith: resumeCommand(view) });
    }
    if (change.kind === 'resume') events.push({ kind: 'resumed', id: `resumed.${n}`, at });
  }
}

async function addCheckpoints({ view, cursor, events }: Page): Promise<void> {
  const { store, record } = view;
  const home = checkpointHome(record);
  const steps = (await store.listFolder(checkpointsFolder(home)))
    .flatMap((name) => /^global_step_(0|[1-9][0-9]*)\/$/.exec(name)?.[1] ?? [])
    .map(Number)
    .filter((step) => step > cursor.checkpoint)
    .sort((a, b) => a - b);
  for (const step of steps) {
    const key = checkpointManifestKey(home, step);
    const info = await store.head(key);
    // The manifest is written last, so without one there is no checkpoint. Uploads run one at a time, so a later upload means that this
    // upload was given up.
    const manifest = info && (await readIfWhole(store, key, 'checkpoint'));
    if (!info || !manifest) continue;
    cursor.checkpoint = step;
    events.push({
      kind: 'checkpoint',
      id: `checkpoint.${step}`,
      at: info.modified.toISOString(),
      step,
      place: `${store.address}/${checkpointFolder(home, step)}`,
      sizeBytes: manifest.files.reduce((sum, { size }) => sum + size, 0),
    });
  }
}

function addStandstill({ view, owners, cursor, events, context }: Page): void {
  const { step, watch, stalled } = cursor;
  if (step === null || stalled === step || context.ending) return;
  const { paused } = foldControl(view.control);
  const alert = paused ? null : stalledSince(restAside(watch, view.control, owners), step, context.now);
  if (!alert) return;
  events.push(alertEvent(alert));
  cursor.stalled = step;
}

function alertEvent({ name, step, at, alert }: RaisedAlert): AlertRaised {
  return { kind: 'alert', id: `alert.${name}.${step}`, at, step, alert };
}

function endOf({ view, owners, cursor, context }: Page): RunEnded | null {
  const { ending } = context;
  const start = owners.findIndex((owner) => owner.firstExecutionRunId === ending?.firstRunId) + 1;
  if (!ending || start === 0 || start < cursor.ended || ending.runId === cursor.endedRunId) return null;
  cursor.ended = start;
  cursor.endedRunId = ending.runId;
  const { record } = view;
  const newest = cursor.evaluations.at(-1);
  return {
    kind: ending.how,
    id: `ended.${start}.${sha256Hex(Buffer.from(ending.runId)).slice(0, 8)}`,
    at: ending.at,
    step: cursor.step,
    steps: plannedSteps(view.record.spec).total,
    passAt1: newest ? newestRate(newest) : null,
    seconds: Math.max(0, (Date.parse(ending.at) - Date.parse(record.observed.started_at)) / 1000),
    spend: spendOf(cursor, owners[start - 1]),
    reason: ending.reason ?? (ending.how === 'completed' ? targetNote(record.spec, cursor) : null),
    resumeWith: ending.how === 'completed' ? null : `longhaul train --run ${nameOfRun(record.run)}`,
    links: context.links,
  };
}

function newestRate({ passAt1 }: ReportedEvaluation): string {
  return passAt1 === null ? `– (${nothingGraded})` : passRateText(passAt1);
}

/** The evaluation that ended a completed run; null if the run ended with its last step. */
export function targetNote(spec: RunSpec, { step, evaluations }: EventCursor): string | null {
  const here = evaluations.filter((one) => one.step === step);
  const reached = here.some((one) => one.suite === 'interval' && reachesTarget(spec, one.step, one.passAt1));
  if (!reached || step === null) return null;
  const final = here.find(({ suite }) => suite === 'final');
  return endingText({
    step,
    target: spec.trainer.target_pass_at_1,
    final: final ? { pass_at_1: final.passAt1, graded: final.graded } : null,
  });
}

/** The spend as text: in dollars if any start named a price. */
export function spendOf({ watch }: EventCursor, owner: OwnerRecord | undefined): string {
  const { max_usd: most, ...prices } = owner?.observed.budget ?? {};
  const { gpu_seconds, usd } = watch.spent;
  const isPriced = prices.usd_per_gpu_hour !== undefined || prices.usd_per_million !== undefined;
  if (!isPriced && usd === 0) return `${(gpu_seconds / 3600).toFixed(2)} GPU hours`;
  return `${usd.toFixed(2)}${most === undefined ? '' : ` of ${most}`} USD`;
}

function resumeCommand({ record }: RunView): string {
  return `longhaul resume ${nameOfRun(record.run)}`;
}
