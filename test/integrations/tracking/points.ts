// Points for tests of trackers, in any number: an evaluation follows every tenth step.
import {
  evaluationPointId,
  type MetricPoint,
  stepPointId,
} from '../../../src/integrations/tracking/metric-point.js';

const start = Date.parse('2026-01-02T03:00:00.000Z');
export const startedAt = new Date(start).toISOString();
const suite = 'ab'.repeat(32);

export function pointsOf(steps: number): MetricPoint[] {
  return Array.from({ length: steps }, (_, index) => {
    const step = index + 1;
    const at = new Date(start + step * 1000).toISOString();
    const values = {
      'trainer/global_step': step,
      'reward/avg_raw_reward': step / 64,
      'reward/crm/eu/pass_at_n': 0.5,
      'policy/grad_norm': 1 / step,
      'cost/tokens': step * 1e6,
      // Zero is a value like any other: one figure that is always zero, and one that falls to zero.
      'generate/unknown_ratio': 0,
      'policy/entropy': step < 12 ? 1 - step / 12 : 0,
    };
    const trained: MetricPoint = { id: stepPointId(step), step, at, values };
    if (step % 10 !== 0) return [trained];
    const measured = { 'eval/all/pass_at_1': step / 128, 'eval/crm/eu/pass_at_1': step / 128 };
    return [trained, { id: evaluationPointId(step, 'interval', suite), step, at, values: measured }];
  }).flat();
}
