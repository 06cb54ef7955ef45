// The example server's faults, as its tests order them: with each task's reset, which the server obeys if the token is right.
import type { EnvironmentBackend } from '../../src/environments/environment.js';

/** Share (0..1) of requests that fail, and of calls in which the model sees an error. */
export interface FaultRates {
  fault_rate?: number;
  tool_error_rate?: number;
}

export function withFaults(backend: EnvironmentBackend, rates: FaultRates): EnvironmentBackend {
  return {
    ...backend,
    open: (task, options, signal) =>
      backend.open({ ...task, reset: { ...task.reset, ...rates } }, options, signal),
  };
}
