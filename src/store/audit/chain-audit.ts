// Checks a run's chain from its records alone: every link by digest, every batch against the same batch sealed again, every outcome against
// its episode. No step may be applied twice or skipped, and no finished episode started again (R9). docs/records.md describes what is
// checked; `longhaul audit` and chaos runs use it.
import type { Digest } from '../../spec/records/parts.js';
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import { wantsReference } from '../../spec/loss.js';
import type { BaseRecord, UpdateRecord } from '../../spec/records/update.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import { lastWarmStep } from '../../spec/schedule.js';
import { AuditReport, readable, type ChainAudit, type Rule } from './audit-report.js';
import { canonicalText, differences, recordDigest, stepIdOf } from '../records/canonical.js';
import { checkBatch, checkWaves } from './batch-audit.js';
import type { Chain, StepMakers } from './chain.js';
import { auditCheckpoints, type StateDigest } from './checkpoint-audit.js';
import { checkEpisodes } from './episode-audit.js';
import { checkRescored } from './rescored-audit.js';
import { auditResamples, auditSequences, unproven } from './sequence-audit.js';
import {
  auditEvaluated,
  auditEvaluations,
  checkForeignEvaluations,
  type CountEvaluation,
} from './evaluation-audit.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  foldedEpisodesKey,
  parseStepFolder,
  planKey,
  runKey,
  stepFolder,
  stepsFolder,
  updateKey,
  weightsManifestKey,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { isDamage } from '../record-errors.js';
import { changedRoot, rootsOf } from '../runs/plan-roots.js';
import { openRunView } from '../runs/quarantine.js';
import { readNumerics, readRun, timelineOf } from '../runs/run-records.js';
import { nameOfBase, nameOfState } from '../records/served-names.js';
import { checkServed } from './served-audit.js';
import { checkStarts } from './start-audit.js';
import { verifyWeights } from '../files/weights.js';

export type { ChainAudit, Violation } from './audit-report.js';

/** Functions that make and check records; they come from folders that the store may not import. */
interface Makers {
  /** Problems within a run's record. */
  runProblems: (record: RunRecord, parent: RunRecord | null) => string[];
  /** Computes the digest of a state from the bytes of its file. */
  stateDigest: StateDigest;
  makers: (view: ObjectStore) => StepMakers;
  countEvaluation: CountEvaluation;
  /** Receives the audit's progress, in words. */
  onProgress?: (place: string) => void;
}

/** Throws `UnreadableRecord` if the run does not exist; every other problem is a violation in the report. */
export async function auditChain(
  plainStore: ObjectStore,
  run: string,
  { makers, countEvaluation, runProblems, stateDigest, onProgress }: Makers,
): Promise<ChainAudit> {
  const report = new AuditReport(run, onProgress);
  const store = (await readable(report, runKey(run), () => openRunView(plainStore, run))) ?? plainStore;
  const record = await readRun(store, run);
  const { lineage } = record;
  const parent = lineage && (await readable(report, runKey(lineage.run), () => readRun(store, lineage.run)));
  for (const problem of runProblems(record, parent)) report.add('R5', runKey(run), problem);
  const { last, touched } = await stepsOf(store, record, report);
  const chain: Chain = {
    store,
    record,
    report,
    // Read the sequences after the steps: a running run records an owner or control before it plans with it.
    sequences: await auditSequences(store, record, report),
    state: null,
    weights: null,
    kind: null,
    applied: new Map(),
    control: 0,
    owner: 0,
    states: [],
    make: makers(store),
    changedRoots: new Set(),
    demonstrations: null,
  };
  for (let step = 0; step <= last; step++) {
    report.at(`step ${step} of ${last}`);
    await (step === 0 ? checkBase(chain) : checkStep(chain, step));
    chain.states[step] = chain.state;
  }
  const starts = new Set<string>();
  for (const step of new Set([...chain.states.keys(), ...touched.filter((one) => one <= last + 1)])) {
    report.at(`attempts of step ${step} of ${Math.max(last, step)}`);
    const timeline = await timelineOf(store, record.run, step);
    for (const start of await checkStarts(chain, timeline, step))
      if (!start.startsWith('runs/')) starts.add(start);
  }
  await auditResamples(plainStore, run, report);
  await checkServed(chain, last);
  report.steps = last + 1;
  report.at('evaluations');
  report.finalState = chain.state;
  const evaluations = await auditEvaluations(store, chain.states, countEvaluation, starts, report);
  await checkForeignEvaluations(store, run, chain.states, report);
  await auditEvaluated(store, record, chain.states, report);
  const ended = chain.kind === 'grpo' && evaluations.some((one) => isLastOf(one, record, last));
  const { collections } = chain.sequences;
  await auditCheckpoints(
    store,
    record,
    chain.states,
    { collections, ended: ended ? last : null },
    stateDigest,
    report,
  );
  report.notClaimed.push(...unproven(run, chain.sequences, chain), ...neverClaimed);
  return report.done();
}

/**
 * True for the run's final evaluation, of its last state; that state is uploaded before the evaluation (R17). False for the final
 * evaluation of a warm start, which evaluates the state from which GRPO starts.
 */
function isLastOf(
  { suite_name, observed }: EvaluationResult,
  { run, lineage }: RunRecord,
  last: number,
): boolean {
  const own = last > (lineage?.step ?? 0);
  return own && suite_name === 'final' && observed.run === run && observed.step === last;
}

/** `last`: the newest committed step; `touched`: all steps that have a folder. */
async function stepsOf(
  store: ObjectStore,
  record: RunRecord,
  report: AuditReport,
): Promise<{ last: number; touched: number[] }> {
  const { run, lineage } = record;
  const touched = (await store.listFolder(stepsFolder(run))).flatMap((name) => parseStepFolder(name) ?? []);
  let last = lineage?.step ?? -1;
  const contents = await inParallel(touched, (step) => store.listFolder(stepFolder(run, step)));
  for (const [index, step] of touched.entries())
    if (contents[index]?.includes('update.json')) last = Math.max(last, step);
  for (const [index, step] of touched.entries()) {
    // In a directory store, a killed put leaves an empty folder behind.
    if (contents[index]?.length === 0) continue;
    if (lineage && step <= lineage.step) {
      report.add('R5', stepFolder(run, step), `steps up to ${lineage.step} belong to ${lineage.run}`);
    }
    if (step > last && contents[index]?.includes('episodes.jsonl.gz')) {
      report.add('R23', foldedEpisodesKey(run, step), 'its episodes were folded, but it is not committed');
    }
    if (step > last + 1) {
      report.add('R5', stepFolder(run, step), `it was begun, but step ${step - 1} is not committed`);
    }
  }
  return { last, touched };
}

async function checkBase(chain: Chain): Promise<void> {
  const { store, report } = chain;
  const timeline = await timelineOf(store, chain.record.run, 0);
  const key = updateKey(timeline, 0);
  const base = await report.read(store, key, 'base');
  if (!base) return report.add('R5', key, 'the base record is missing: the chain has no beginning');
  if (base.identity.run !== timeline) report.add('R5', key, `it says run ${base.identity.run}`);
  if (base.identity.base_model !== (await readRun(store, timeline)).base_model) {
    report.add('R5', key, 'it was made from another base model than run.json names');
  }
  const named = await servedNameOf(chain, timeline, base);
  if (named !== null && named !== base.identity.state)
    report.add(
      'R32',
      key,
      `its state is not named for the model, its rank and its seed, which give ${named}`,
    );
  await checkWeights(chain, base);
  chain.state = base.identity.state;
  chain.weights = base.identity.weights ?? null;
}

/** Name of state 0 on a Tinker server; null if the run has an engine of its own. */
async function servedNameOf(
  { store }: Chain,
  timeline: string,
  { identity: { numerics } }: BaseRecord,
): Promise<Digest | null> {
  const { model, seed } = (await readRun(store, timeline)).spec;
  if (numerics.backend !== 'tinker' || !model.served) return null;
  const { service = '', model: name = '' } = numerics;
  return nameOfBase({ service, model: name, rank: model.served.rank, seed: model.served.seed ?? seed });
}

/** Checks the weights of a run that started from a folder: without them it cannot be restored. */
async function checkWeights({ store, record, report }: Chain, { identity }: BaseRecord): Promise<void> {
  if (record.spec.model.path === undefined || identity.weights === undefined) return;
  try {
    await verifyWeights(store, identity.weights);
  } catch (error) {
    if (!isDamage(error)) throw error;
    report.add('R31', weightsManifestKey(identity.weights), error.message);
  }
}

async function checkStep(chain: Chain, step: number): Promise<void> {
  const { store, report } = chain;
  const timeline = await timelineOf(store, chain.record.run, step);
  const key = updateKey(timeline, step);
  const [update, plan] = await Promise.all([
    report.read(store, key, 'update'),
    report.read(store, planKey(timeline, step), 'plan'),
  ]);
  if (!update) {
    report.add('R5', key, `step ${step} was skipped: a later one is committed`);
    // From here, compare later steps only with each other, so that one gap is one violation.
    chain.state = null;
    return;
  }
  if (chain.state === null) chain.state = update.identity.previous_state;
  checkUpdate(chain, key, update, timeline, step);
  if (!plan) report.add('R7', planKey(timeline, step), 'the plan is missing');
  else checkPlan(chain, planKey(timeline, step), plan, update, timeline, step);
  const numerics = await readable(report, key, () => readNumerics(store, timeline));
  if (numerics && canonicalText(numerics) !== canonicalText(update.identity.numerics))
    report.add('R18', key, 'it was computed with other numerics than its run’s');
  if (update.identity.weights !== undefined) {
    chain.weights = update.identity.weights;
    if (step !== lastWarmStep(chain.record.spec))
      report.add('R10', key, 'it names weights for KL terms, but GRPO does not begin after it');
  }
  if (plan) await checkPlanned(chain, planKey(timeline, step), plan);
  if (plan?.rebased) await checkRebased(chain, planKey(timeline, step), plan, plan.rebased);
  const played = plan?.kind === 'grpo' && !plan.rebased;
  const inputs = played
    ? await checkEpisodes(chain, timeline, await checkWaves(chain, plan, update), update)
    : null;
  await checkBatch(chain, timeline, update, plan, inputs);
  await checkRescored(chain, timeline, update, plan);
  const { lineage } = chain.record;
  if (lineage?.step === step && lineage.state !== update.identity.state) {
    report.add(
      'R5',
      runKey(chain.record.run),
      `it continues from ${lineage.state}, but its parent has another state`,
    );
  }
  chain.state = update.identity.state;
  chain.kind = update.identity.kind;
}

function checkUpdate(chain: Chain, key: string, update: UpdateRecord, timeline: string, step: number): void {
  const { report } = chain;
  const { identity } = update;
  const { applied, previous_state, state } = identity;
  if (identity.run !== timeline || identity.step !== step) {
    report.add('R5', key, `it says step ${identity.step} of ${identity.run}`);
  }
  if (previous_state !== chain.state) {
    report.add('R5', key, `it continues from ${previous_state}, but the chain is at ${chain.state}`);
  }
  if (identity.step_id !== stepIdOf(previous_state, identity.batch, identity.plan)) {
    report.add('R11', key, 'its step_id does not follow from its parts');
  }
  if (applied !== true && state !== previous_state) {
    report.add('R5', key, 'it was not applied, but the state changed');
  }
  if (applied !== true) return;
  report.updatesApplied += 1;
  if (identity.numerics.backend === 'tinker' && state !== nameOfState(previous_state, identity.step_id))
    report.add('R32', key, 'its state is not named for the state before and the step id');
  // The state's digest covers the optimizer's step count, so an applied update always changes it.
  if (state === previous_state) report.add('R5', key, 'it was applied, but the state did not change');
  for (const id of [identity.step_id, identity.batch]) {
    const earlier = chain.applied.get(id);
    if (earlier !== undefined) report.add('R12', key, `it applies the update of step ${earlier} again`);
    chain.applied.set(id, step);
  }
}

function checkPlan(
  chain: Chain,
  key: string,
  plan: PlanRecord,
  update: UpdateRecord,
  timeline: string,
  step: number,
): void {
  const { report, record, sequences } = chain;
  const fault = (rule: Rule, problem: string): void => report.add(rule, key, problem);
  if (recordDigest(plan) !== update.identity.plan) fault('R7', 'its digest is not the one in update.json');
  if (plan.run !== timeline || plan.step !== step) fault('R7', `it says step ${plan.step} of ${plan.run}`);
  if (plan.previous_state !== update.identity.previous_state) {
    fault('R7', `it was made for state ${plan.previous_state}, but the update continues from another state`);
  }
  if (plan.kind !== update.identity.kind)
    fault('R7', `it is a ${plan.kind} plan, but the update has another kind`);
  if (canonicalText(plan.numerics) !== canonicalText(update.identity.numerics)) {
    fault('R18', 'the update was computed with other numerics');
  }
  const { tokenizer, chat_template, tool_parser, dataset } = record;
  const expected = { tokenizer, chat_template, tool_parser, dataset: dataset.digest };
  if (canonicalText(plan.digests) !== canonicalText(expected)) {
    fault('R7', 'its digests of tokenizer, template, parser and dataset are not those of run.json');
  }
  const reference = wantsReference(plan.loss) ? (chain.weights ?? plan.reference ?? null) : null;
  if ((plan.reference ?? null) !== reference) {
    fault('R10', 'its KL term is not taken against the weights that GRPO began with');
  }
  if (timeline !== record.run) return;
  if (plan.control > sequences.control) fault('R21', `it covers control ${plan.control}, which is missing`);
  if (plan.owner > sequences.owners) fault('R20', `it was made by owner ${plan.owner}, which is missing`);
  if (plan.control < chain.control) fault('R21', `it covers less control than the plan before`);
  if (plan.owner < chain.owner) fault('R20', `it was made by an older owner than the plan before`);
  [chain.control, chain.owner] = [plan.control, plan.owner];
}

/** What no audit can claim, for any store: see "What an audit claims" in docs/records.md. */
const neverClaimed = [
  'trajectories/, reports/ and comparisons: they can be made again from the records',
  'tallies/, notices/ and the observed parts of records: they hold figures and times that no digest covers',
  'bytes that change no meaning: JSON that is not canonical, gzip headers, and objects that no record names',
  'whether an engine really sampled and an environment really graded an episode: --replay only computes updates',
  'who wrote a record: anyone who can write to the store can replace the whole chain, from its first plan on',
];

/** Members of a plan that the audit compares with the chain, not with a new plan: the digests of its records, and its reference. */
const comparedElsewhere = /^(run_digest|control_digest|owner_digest|reference) /;

/** Checks that a plan is a function of the records it was made from, and that these are unchanged (R7). */
async function checkPlanned(
  { store, report, make, changedRoots }: Chain,
  key: string,
  plan: PlanRecord,
): Promise<void> {
  if (plan.run_digest !== undefined) {
    const roots = await readable(report, key, () => rootsOf(store, plan));
    const changed = roots && changedRoot(plan, roots);
    if (changed && !changedRoots.has(changed.key)) {
      changedRoots.add(changed.key);
      report.add('R1', changed.key, changed.problem);
    }
  }
  const made = await readable(report, key, () => make.plan(plan));
  if (!made) return;
  const found = differences(plan, made, 12).filter((line) => !comparedElsewhere.test(line));
  if (found.length > 0)
    report.add(
      'R7',
      key,
      `planning step ${plan.step} again from its records gives another plan: ${found.join('; ')}`,
    );
}

/** Checks that the step that a rebased plan names exists and is committed (R18). */
async function checkRebased(
  { store, report }: Chain,
  key: string,
  plan: PlanRecord,
  rebased: NonNullable<PlanRecord['rebased']>,
): Promise<void> {
  const fault = (problem: string): void => report.add('R18', key, problem);
  const { lineage } = await readRun(store, plan.run);
  if (plan.step > (lineage?.rebase?.to ?? 0))
    fault('it is rebased, but the run is not rebased, or not up to this step');
  const sourceKey = planKey(rebased.run, plan.step);
  const [source, update] = await Promise.all([
    report.read(store, sourceKey, 'plan'),
    report.read(store, updateKey(rebased.run, plan.step), 'update'),
  ]);
  if (!source || !update) return fault(`its source ${sourceKey} is missing or not committed`);
  if (recordDigest(source) !== rebased.plan)
    fault(`its source ${sourceKey} has another digest than it names`);
  if (update.identity.plan !== rebased.plan) fault(`its source was committed from another plan`);
}
