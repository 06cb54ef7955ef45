// Faults injected on purpose (R26): pure functions, so that a replay meets the same ones.
import { hash32 } from './random.js';

/** `error`: the server answers with a failure; `drop`: the connection ends without an answer. */
export type InfrastructureFault = 'error' | 'drop';

/** Tool error that the model sees instead of this turn's result, or null. The tool is not run. */
export function modelFault(seed: number, turn: number, rate: number): string | null {
  return share(`model/${seed}/${turn}`) < rate ? '{"error":"503 busy, try again"}' : null;
}

/** Fault of the transport or server in this try of the turn, or null. `turn` −1 is opening the episode. */
export function infrastructureFault(
  seed: number,
  turn: number,
  tryNumber: number,
  rate: number,
): InfrastructureFault | null {
  if (share(`infrastructure/${seed}/${turn}/${tryNumber}`) >= rate) return null;
  return share(`kind/${seed}/${turn}/${tryNumber}`) < 0.5 ? 'error' : 'drop';
}

function share(key: string): number {
  return hash32(key) / 0x1_0000_0000;
}
