// The settings of a GRPO step: the spec's, unless another value was set while the run was under way (R21).
import type { ControlState } from '../../spec/records/control-records.js';
import type { RunSpec } from '../../spec/run-spec.js';

/** A supervised step has settings of its own in the spec; these do not change it. */
export function settingsUnder(
  { generator, trainer }: RunSpec,
  control: ControlState,
): Pick<RunSpec, 'generator' | 'trainer'> {
  return { generator: replaced(generator, control), trainer: replaced(trainer, control) };
}

function replaced<Part extends object>(part: Part, control: ControlState): Part {
  const set = Object.entries(control).filter(([name, value]) => name in part && value !== null);
  return { ...part, ...Object.fromEntries(set) };
}
