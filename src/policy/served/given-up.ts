// Why a model on a Tinker server is never trained further.
import { InDoubt, ModelLost, TinkerRefused } from '../../engine/tinker/call-errors.js';
import { BadTinkerAnswer } from '../../engine/tinker/wire.js';

/** The model cannot be trusted any more: the next one begins with a saved state (R35). */
export class InstanceGivenUp extends Error {
  override readonly name = 'InstanceGivenUp';
}

/** The optimizer's step had a gradient that is not finite: the weights on the server are lost, and the batch is not applied (R37). */
export class NonFiniteStep extends InstanceGivenUp {}

/** True if the model may hold something else than the records say, or may be gone. */
export function isDoubtful(error: unknown): boolean {
  return [ModelLost, InDoubt, TinkerRefused, InstanceGivenUp, BadTinkerAnswer].some(
    (kind) => error instanceof kind,
  );
}
