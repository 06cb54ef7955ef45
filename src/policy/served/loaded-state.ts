// Loads a saved state into a model of a Tinker server. The server's word is not enough: it may have lost the state, and say that it has loaded
// it (R36, R37).
import { ModelLost, TinkerRefused } from '../../engine/tinker/call-errors.js';
import type { RequestOptions, WaitOptions } from '../../engine/tinker/futures.js';
import type { TinkerService } from '../../engine/tinker/service.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { SavedStateRecord } from '../../spec/records/served-model.js';
import { checkPass } from './served-instance.js';
import type { ServedLog } from './served-log.js';
import { servedOf, weightsTolerance } from './step-requests.js';
import { problemOf } from './weight-check.js';

interface Loader {
  service: TinkerService;
  log: ServedLog;
}

interface Target {
  model: string;
  saved: SavedStateRecord;
  /** With the optimizer's moments. */
  optimizer: boolean;
}

/**
 * Loads a saved state as the first request of `model`. Returns why the model cannot be used, because the state is gone or is another one; null
 * if it holds the state.
 */
export async function problemOfLoad(
  { service, log }: Loader,
  { run, spec }: RunRecord,
  { model, saved, optimizer }: Target,
  options: RequestOptions,
): Promise<string | null> {
  try {
    await service.loadWeights({ model_id: model, seq_id: 1 }, saved.path, { ...options, optimizer });
  } catch (error) {
    options.signal?.throwIfAborted();
    const isGone =
      error instanceof TinkerRefused ||
      (error instanceof ModelLost && !(await isListed(service, saved.path, options)));
    if (!isGone) throw error;
    return 'does not load';
  }
  const check = await log.checkOf(run, saved.step);
  if (check === null) return null;
  const found = await checkPass(service, { model_id: model }, check.data, options);
  const again = await log.isAppliedAgain(run, saved);
  const problem = problemOf(check, found, weightsTolerance(servedOf(spec)), again);
  return problem === null ? null : `loads as something else: ${problem}`;
}

async function isListed(service: TinkerService, path: string, options: WaitOptions): Promise<boolean> {
  const [model = ''] = path.replace(/^tinker:\/\//, '').split('/');
  const listed = await service.checkpoints(model, options);
  return listed.some(({ tinker_path }) => tinker_path === path);
}
