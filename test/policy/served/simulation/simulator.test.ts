// Tests the simulator itself: it is deterministic, accepts a correct server, and notices a faulty one. LONGHAUL_SIMULATION_SEED=123 replays one seed
// and prints what happened.
import { describe, expect, test } from 'vitest';
import { type Adapters, freshAdapters } from './adapters.js';
import { type Changes, changed, scheduleOf } from './schedule.js';
import { SimulatedServer } from './server.js';
import { simulate } from './simulation.js';

const replayed = process.env['LONGHAUL_SIMULATION_SEED'];

const undisturbed = { mostFaults: 0, evaluations: 0, visitors: 0 } satisfies Changes;

async function wrongOnes(changes: Changes, Server: typeof SimulatedServer): Promise<number[]> {
  const wrong: number[] = [];
  for (let seed = 1; seed <= 40; seed++) {
    const verdict = await simulate(changed(scheduleOf(seed), changes), { Server });
    if (verdict.kind === 'wrong') wrong.push(seed);
  }
  return wrong;
}

if (replayed !== undefined)
  test('replays a seed', async () => {
    const trace: string[] = [];
    const schedule = scheduleOf(Number(replayed));
    const verdict = await simulate(schedule, { trace });
    console.log([JSON.stringify(schedule), ...trace, JSON.stringify(verdict, null, 2)].join('\n'));
    expect(verdict.kind).not.toBe('wrong');
  });

test('undisturbed schedules end right', async () => {
  expect(await wrongOnes(undisturbed, SimulatedServer)).toEqual([]);
});

test('a seed has one trace', async () => {
  const traces = [[], []] as string[][];
  for (const trace of traces) await simulate(scheduleOf(5), { trace });
  expect(traces[0]!.length).toBeGreaterThan(50);
  expect(traces[1]).toEqual(traces[0]);
});

describe('control: the simulator notices a server', () => {
  const restarts = { ...undisturbed, mostFaults: 3, faults: { restart: 1 } };

  test('whose saved states are a little off, less than a check of the weights notices', async () => {
    class Rough extends SimulatedServer {
      override restart(): void {
        super.restart();
        for (const { adapters } of this.saves.values()) if (adapters) adapters.weights[0]! += 1e-3;
      }
    }
    expect(await wrongOnes(restarts, Rough)).not.toEqual([]);
    expect(await wrongOnes(restarts, SimulatedServer)).toEqual([]);
  });

  test('that saves no moments', async () => {
    class Forgetful extends SimulatedServer {
      override restart(): void {
        super.restart();
        for (const save of this.saves.values())
          if (save.adapters)
            save.adapters = { ...freshAdapters(), weights: save.adapters.weights } satisfies Adapters;
      }
    }
    expect(await wrongOnes(restarts, Forgetful)).not.toEqual([]);
  });
});
