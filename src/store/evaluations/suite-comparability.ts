// Decides whether an evaluation equals the evaluation that the run itself would make. Evaluations are stored by state: if several runs reach the
// same state, the first of these runs evaluated it, perhaps with other settings.
import { isDeepStrictEqual } from 'node:util';
import type { EvaluationResult, SuiteRecord } from '../../spec/records/evaluation-records.js';
import { sameNumerics } from '../../spec/records/numerics.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import { evaluationPlay } from '../../spec/schedule.js';
import { datasetManifestKey, evaluationSuiteKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord, requireRecord } from '../records/records.js';
import { readNumerics } from '../runs/run-records.js';

/** True if `result` has as many tasks and samples as the run's own suite, with the run's data, seed, settings and numerics. */
export async function isSuiteOf(
  store: ObjectStore,
  record: RunRecord,
  result: Pick<EvaluationResult, 'state' | 'suite' | 'suite_name'>,
): Promise<boolean> {
  const suite = await readRecord(store, evaluationSuiteKey(result.state, result.suite), 'suite');
  if (!suite || suite.seed !== record.seed) return false;
  const { tokenizer, chat_template, tool_parser, dataset } = suite.digests;
  return (
    tokenizer === record.tokenizer &&
    chat_template === record.chat_template &&
    tool_parser === record.tool_parser &&
    dataset === record.dataset.digest &&
    samplesAlike(suite, record) &&
    sameNumerics(suite.numerics, await readNumerics(store, record.run)) &&
    suite.tasks.length === (await suiteSize(store, record, result.suite_name))
  );
}

function samplesAlike({ sampling, samples_per_task }: SuiteRecord, { spec }: RunRecord): boolean {
  const { samples, temperature } = evaluationPlay(spec.generator);
  if (samples_per_task !== samples) return false;
  const expected: Record<string, unknown> = { ...spec.generator, temperature };
  const sampled: Record<string, unknown> = { stop: undefined, ...sampling };
  return Object.entries(sampled).every(([name, value]) => isDeepStrictEqual(expected[name], value));
}

async function suiteSize(store: ObjectStore, { spec, dataset }: RunRecord, suite: string): Promise<number> {
  const manifest = await requireRecord(store, datasetManifestKey(dataset.name, dataset.version), 'dataset');
  const wanted = suite === 'final' ? spec.data.final_eval_tasks : spec.data.eval_tasks;
  return Math.min(wanted, manifest.held_out_tasks);
}
