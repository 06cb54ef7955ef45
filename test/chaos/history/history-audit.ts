// Compares the histories of a run's executions with its records (docs/records.md). Every committed step must have its activities. Every
// activity's answer must have a record, and every Update a control record. A history must not contain secrets or large payloads.
import type {
  CollectedRollouts,
  CommittedStep,
  OpenedRun,
  PlannedStep,
} from '../../../src/activities/contracts.js';
import type { ControlState } from '../../../src/spec/records/control-records.js';
import { writings } from '../../../src/base/secrets.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import {
  type AcceptedUpdate,
  activitiesOf,
  type Activity,
  chainsOf,
  endOf,
  type Execution,
  payloadsOf,
  resultOf,
  signalsOf,
  textsOf,
  updatesOf,
} from './execution.js';
import { differingResult, StoredRun } from './returned-results.js';

export interface HistoryViolation {
  /** The violated rule of docs/rules.md, or a requirement on the history itself. */
  rule: 'R4' | 'R5' | 'R7' | 'R8' | 'R21' | 'size' | 'ends' | 'secrets';
  /** Workflow id and number of the event. */
  at: string;
  problem: string;
}

export interface HistoryAudit {
  executions: number;
  events: number;
  /** Number of answered Updates. */
  updates: number;
  /** Number of steps whose commit is in a history. A server that lost its database knows only the later steps. */
  steps: number;
  largestPayloadBytes: number;
  violations: HistoryViolation[];
}

const payloadLimitBytes = 10 * 1024;

type Report = (rule: HistoryViolation['rule'], eventId: string, problem: string) => void;
type ReportOn = (execution: Execution) => Report;

/** `secrets`: texts that must not be in a history in any encoding. `run`: a run without quarantined records. */
export async function auditHistories(
  store: ObjectStore,
  run: string,
  executions: readonly Execution[],
  secrets: readonly string[] = [],
): Promise<HistoryAudit> {
  const violations: HistoryViolation[] = [];
  const reportOn: ReportOn =
    ({ workflowId }) =>
    (rule, eventId, problem) =>
      violations.push({ rule, at: `${workflowId} event ${eventId}`, problem });
  const stored = new StoredRun(store, run);
  const audit: HistoryAudit = {
    executions: executions.length,
    events: executions.reduce((sum, { events }) => sum + events.length, 0),
    ...{ updates: 0, steps: 0, largestPayloadBytes: 0, violations },
  };
  for (const execution of executions) {
    const report = reportOn(execution);
    audit.largestPayloadBytes = Math.max(
      audit.largestPayloadBytes,
      checkContents(execution, secrets, report),
    );
    checkEnds(execution, report);
    checkQuiet(execution, report);
    for (const { end, eventId, type, input } of activitiesOf(execution)) {
      if (!end?.completed) continue;
      for (const problem of await differingResult(stored, { type, input, result: end.result }))
        report('R4', eventId, `${type}: ${problem}`);
    }
  }
  for (const [id, chain] of chainsOf(executions)) {
    audit.steps += await checkSteps(chain, stored, reportOn);
    audit.updates += await checkControl(id, chain, stored, reportOn);
  }
  return audit;
}

/** Checks that no payload is large and no text contains a secret. Returns the bytes of the largest payload. */
function checkContents(execution: Execution, secrets: readonly string[], report: Report): number {
  let largest = 0;
  const forbidden = secrets.flatMap((secret) => writings(secret));
  for (const event of execution.events) {
    for (const { length } of payloadsOf(event)) {
      largest = Math.max(largest, length);
      if (length >= payloadLimitBytes)
        report('size', event.eventId, `a payload has ${length} bytes, the limit is ${payloadLimitBytes}`);
    }
    const texts = forbidden.length > 0 ? textsOf(event) : [];
    if (texts.some((text) => forbidden.some((secret) => text.includes(secret))))
      report('secrets', event.eventId, 'it holds a secret');
  }
  return largest;
}

/** When an execution has completed or continued as new, everything that it started must have ended. */
function checkEnds(execution: Execution, report: Report): void {
  const end = endOf(execution);
  if (end !== 'COMPLETED' && end !== 'CONTINUED_AS_NEW') return;
  // An activity that was cancelled on a lost node ends by its time-out, and a run that is over does not wait for that.
  for (const activity of activitiesOf(execution))
    if (!activity.end && !activity.calledOff)
      report('ends', activity.eventId, `${activity.id} was begun and never ended`);
  for (const update of updatesOf(execution))
    if (!update.end) report('ends', update.eventId, `the update ${update.name} was never answered`);
}

/** No step may be planned while an Update is being recorded, and a plan must include all Updates that were answered before it (R21). */
function checkQuiet(execution: Execution, report: Report): void {
  const activities = activitiesOf(execution);
  const open = [
    ...updatesOf(execution).map(({ at, name, end }) => ({
      from: at,
      to: end?.at,
      what: `the update ${name}`,
    })),
    ...activities
      .filter(({ type }) => type === 'recordControl')
      .map(({ at, id, end }) => ({ from: at, to: end?.at, what: id })),
  ];
  for (const plan of activities.filter(({ type }) => type === 'planStep')) {
    const during = open.find(({ from, to = Infinity }) => from < plan.at && plan.at < to);
    if (during) report('R21', plan.eventId, `${plan.id} was asked for while ${during.what} was written`);
    const answered = activities.flatMap(({ type, end }) =>
      type === 'recordControl' && end?.completed && end.at < plan.at ? [(end.result as ControlState).n] : [],
    );
    const { control } = plan.input as { control: number };
    const newest = Math.max(0, ...answered);
    if (control < newest)
      report('R21', plan.eventId, `${plan.id} covers control ${control}, answered was ${newest}`);
  }
}

/**
 * Each chain must open at the recorded position and commit the steps in order. Each step needs its plan, the rollouts of all its slots and
 * an update of that plan. The last step must be the last recorded one. Returns the number of committed steps.
 */
async function checkSteps(
  chain: readonly Execution[],
  stored: StoredRun,
  reportOn: ReportOn,
): Promise<number> {
  let committed: number | null = null;
  let steps = 0;
  for (const execution of chain) {
    const report = reportOn(execution);
    const done = activitiesOf(execution).filter(({ end }) => end?.completed);
    const opened = done.find(({ type }) => type === 'openRun');
    const position = (opened?.end?.result as OpenedRun | undefined)?.position.step;
    if (opened && committed !== null && position !== committed)
      report('R5', opened.eventId, `it opens at step ${position}, the one before ended at ${committed}`);
    committed ??= position ?? null;
    for (const update of inOrderOfTheirEnds(done.filter(({ type }) => type === 'updatePolicy'))) {
      const { step } = update.end?.result as CommittedStep;
      // A task on a lost lease may still answer beside the task that replaced it. Both have the same record (R4).
      if (step === committed && isDoubled(update, done, signalsOf(execution, 'revoked'))) continue;
      const next: number = Math.max(0, committed ?? step - 1) + 1;
      if (step !== next) report('R5', update.eventId, `it commits step ${step}, the next one is ${next}`);
      checkStep(update, done, report);
      committed = step;
      steps += 1;
    }
    if (endOf(execution) === 'COMPLETED') await checkResult(execution, committed, stored, report);
  }
  return steps;
}

/**
 * Whether two updates of one step are allowed: the lease of the first must have ended before the second. If both answers reached the
 * workflow at once, there was nothing left to cancel, and only the signal shows that the lease had ended.
 */
function isDoubled(update: Activity, done: readonly Activity[], revoked: readonly number[]): boolean {
  const stepOf = ({ end }: Activity): number => (end?.result as CommittedStep).step;
  const others = done.filter(({ type }) => type === 'updatePolicy').filter((one) => one !== update);
  return others.some((other) => {
    const [from, to] = [Math.min(update.at, other.at), Math.max(update.at, other.at)];
    const leaseEnded = other.calledOff || update.calledOff || revoked.some((at) => from < at && at < to);
    return stepOf(other) === stepOf(update) && leaseEnded;
  });
}

function checkStep(update: Activity, done: readonly Activity[], report: Report): void {
  const { step, plan } = update.input as { step: number; plan: string };
  const before = done.filter(
    ({ input, end }) => (input as { step?: number }).step === step && (end?.at ?? Infinity) < update.at,
  );
  const planned = before.find(
    ({ type, end }) => type === 'planStep' && (end?.result as PlannedStep).plan === plan,
  );
  if (!planned) {
    report('R7', update.eventId, `step ${step} was updated by a plan that was not made before`);
    return;
  }
  const { kind, slots } = planned.end?.result as PlannedStep;
  if (kind !== 'grpo') return;
  const played = new Set(
    before
      .filter(({ type, input }) => type === 'collectRollouts' && (input as { plan: string }).plan === plan)
      .flatMap(({ input, end }) => {
        const [from, to] = (input as { slots: [number, number] }).slots;
        const { graded, unknown } = end?.result as CollectedRollouts;
        return graded + unknown > 0 ? Array.from({ length: to - from }, (_, index) => from + index) : [];
      }),
  );
  const missing = Array.from({ length: slots }, (_, slot) => slot).filter((slot) => !played.has(slot));
  if (missing.length > 0)
    report('R8', update.eventId, `step ${step} was updated before slots ${missing.join(', ')} were played`);
}

async function checkResult(
  execution: Execution,
  committed: number | null,
  stored: StoredRun,
  report: Report,
): Promise<void> {
  const eventId = execution.events.at(-1)?.eventId ?? '';
  const { step, state } = resultOf(execution) as { step: number; state: string | null };
  if (committed !== null && step !== committed)
    report('R5', eventId, `it ended after step ${step}, the last one committed is ${committed}`);
  if (state !== (await stored.state(step)))
    report('R4', eventId, `it ended with the state ${state}, which is not that of step ${step}`);
  if (await stored.update(step + 1))
    report('R5', eventId, `it ended after step ${step}, and the records go on`);
}

/** Answered Updates and control records must correspond (R21). Returns the number of answered Updates. */
async function checkControl(
  firstExecutionRunId: string,
  chain: readonly Execution[],
  stored: StoredRun,
  reportOn: ReportOn,
): Promise<number> {
  const records = await stored.control();
  const accepted = new Map<string, AcceptedUpdate>();
  let answered = 0;
  for (const execution of chain) {
    const report = reportOn(execution);
    for (const update of updatesOf(execution)) {
      accepted.set(update.id, update);
      const answer = update.end?.answer as ControlState | null | undefined;
      if (!answer) continue;
      answered += 1;
      const record = records.find((one) => one.update_id === `${firstExecutionRunId}/${update.id}`);
      if (!record && !heldAlready(update, answer))
        report('R21', update.eventId, `the update ${update.name} was answered, and has no control record`);
      if (record && answer.n < record.n)
        report('R21', update.eventId, `it was answered with control ${answer.n}, its record is ${record.n}`);
    }
  }
  for (const { n, update_id } of records) {
    const [first, id = ''] = update_id.split('/');
    const execution = chain.at(-1);
    if (first === firstExecutionRunId && !accepted.has(id) && execution)
      reportOn(execution)(
        'R21',
        '–',
        `control record ${n} says update ${id}, which no history of it has accepted`,
      );
  }
  return answered;
}

/** True for a pause of a paused run, which is answered without a second record. */
const heldAlready = ({ name }: AcceptedUpdate, { n, paused }: ControlState): boolean =>
  name.startsWith('pause') && paused && n > 0;

const inOrderOfTheirEnds = (activities: readonly Activity[]): Activity[] =>
  [...activities].sort((a, b) => (a.end?.at ?? 0) - (b.end?.at ?? 0));
