// The settings of a GRPO step: the spec's, except where an Update has set another value during the run (R21).
import type { ControlState } from '../../spec/records/control-records.js';
import type { RunSpec } from '../../spec/run-spec.js';

/** Supervised steps are not affected: they have their own settings in the spec. */
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
