// Which phase a step belongs to, from the spec alone.
import type { RunOutline } from './contracts.js';
import type { RunSpec, SftPhaseSpec } from '../spec/run-spec.js';

/** `index` counts the phase's steps from 0. */
export type PhaseStep = { kind: 'sft'; spec: SftPhaseSpec; index: number } | { kind: 'grpo'; index: number };

export function phaseAt(spec: RunSpec, step: number): PhaseStep {
  let first = 1;
  for (const phase of spec.warm_start) {
    const steps = stepsOf(phase);
    if (step < first + steps) return { kind: 'sft', spec: phase, index: step - first };
    first += steps;
  }
  return { kind: 'grpo', index: step - first };
}

export function phasesOf(spec: RunSpec): RunOutline['phases'] {
  return [
    ...spec.warm_start.map((phase) => ({ name: phase.name, kind: 'sft' as const, steps: stepsOf(phase) })),
    { name: 'grpo', kind: 'grpo' as const, steps: spec.trainer.max_training_steps },
  ];
}

function stepsOf(phase: SftPhaseSpec): number {
  return Math.ceil(phase.updates / phase.mini_batches_per_step);
}
