// Faults that are injected on purpose (R26): pure functions, so a replay gets the same faults.
import { hash32 } from './random.js';

/** `error`: the server answers with a failure. `drop`: it ends the connection without an answer. */
type InfrastructureFault = 'error' | 'drop';

/** A tool error that the model sees instead of this turn's result, or null. With an error, the tool does not run. */
export function modelFault(seed: number, turn: number, rate: number): string | null {
  return share(`model/${seed}/${turn}`) < rate ? '{"error":"503 busy, try again"}' : null;
}

/** A fault of the connection or the server in this try of the turn, or null. Turn −1 is the opening of the episode. */
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
