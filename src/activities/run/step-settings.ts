// What the spec says of a step: its phase, and its settings, where an Update may have set another value during the run (R21).
import type { PhaseSpan } from '../contracts.js';
import type { ControlState } from '../../spec/records/control-records.js';
import type { RunSpec, SftPhaseSpec } from '../../spec/run-spec.js';
import { stepsOf } from '../../spec/schedule.js';

/** `index` counts the phase's steps from 0. */
type PhaseStep = { kind: 'sft'; spec: SftPhaseSpec; index: number } | { kind: 'grpo'; index: number };

export function phaseAt(spec: RunSpec, step: number): PhaseStep {
  const spans = phasesOf(spec);
  const at = spans.findIndex(({ last }) => step <= last);
  const phase = spec.warm_start[at];
  const index = step - (spans.at(at)?.first ?? 1);
  return phase ? { kind: 'sft', spec: phase, index } : { kind: 'grpo', index };
}

export function phasesOf(spec: RunSpec): PhaseSpan[] {
  let first = 1;
  const span = (name: string, kind: PhaseSpan['kind'], steps: number): PhaseSpan => {
    const last = first + steps - 1;
    const made = { name, kind, first, last };
    first = last + 1;
    return made;
  };
  return [
    ...spec.warm_start.map((phase) => span(phase.name, 'sft', stepsOf(phase))),
    span('grpo', 'grpo', spec.trainer.max_training_steps),
  ];
}

/** The settings of a GRPO step. Supervised steps are not affected: they have their own settings in the spec. */
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
