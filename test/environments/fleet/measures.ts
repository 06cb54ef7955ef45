// What faults of Fleet and kills of a node do to grades and instances.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Solution } from '../../../src/data/task-file.js';
import type { EpisodePlay } from '../../../src/episode/episode-loop.js';
import { seededRandom } from '../../chaos/random.js';
import { fleetBackend, playCalls, readFleetTasks } from './fixture.js';
import { calm, type FleetFaults, type FleetService } from './fleet-service.js';

export interface FaultFigures {
  episodes: number;
  /** Solved tasks with the grade 0. */
  false_zeros: number;
  unknown: number;
  met_a_fault: number;
  /** Instances that are still there when all episodes have ended. */
  left: number;
}

/** Every fault of the service strikes this share of its events. */
export const faultsAt = (rate: number): FleetFaults =>
  Object.fromEntries(
    [
      ...[
        'drop_create_reply',
        'fail_create',
        'drop_call_reply',
        'fail_call',
        'drop_delete_reply',
        'fail_delete',
      ],
      ...['fail_verify', 'verify_http', 'judge_error', 'result_none', 'lock_while_verifying'],
      ...['verify_busy', 'drop_reset_reply', 'fail_reset', 'hide_tools', 'limit_polls'],
    ].map((name) => [name, rate]),
  );

/** Plays the solution of each task once while the service has these faults. */
export async function playWithFaults(
  service: FleetService,
  faults: FleetFaults,
  { tasks: count = 100 } = {},
): Promise<FaultFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-fleet-faults-'));
  const { tasks, solutions, codes } = readFleetTasks(service.tasks);
  const backend = fleetBackend({
    ...{ url: service.url, key: service.key, codes, folder, owner: folder, places: 32 },
  });
  await service.control({ ...calm, ...faults });
  try {
    const plays = await Promise.all(
      tasks
        .slice(0, count)
        .map((task, slot) => playCalls(backend, task, solutions.get(task.task_key) as Solution, { slot })),
    );
    await service.control(calm);
    await backend.close();
    return {
      episodes: plays.length,
      false_zeros: plays.filter(({ outcome }) => outcome.status === 'graded' && outcome.value !== 1).length,
      unknown: plays.filter(({ outcome }) => outcome.status === 'unknown').length,
      met_a_fault: plays.filter(({ failures }) => Object.keys(failures).length > 0).length,
      left: await runningOn(service),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Grades of each task: `KEY/gold`, `KEY/wrong` and `KEY/nothing`; a text if there is none. */
export async function gradesOf(service: FleetService): Promise<Map<string, number | string>> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-fleet-grades-'));
  const { tasks, solutions, wrong, codes } = readFleetTasks(service.tasks);
  const backend = fleetBackend({ url: service.url, key: service.key, codes, folder, owner: folder });
  const nothing = { calls: [], final_answer: '' };
  try {
    const grades = tasks.flatMap((task, index) =>
      Object.entries({ gold: solutions.get(task.task_key), wrong: wrong.get(task.task_key), nothing }).map(
        async ([name, calls], which) => {
          const { outcome } = await playCalls(backend, task, calls ?? nothing, { slot: 3 * index + which });
          const grade = outcome.status === 'graded' ? outcome.value : outcome.reason;
          return [`${task.task_key}/${name}`, grade] as const;
        },
      ),
    );
    return new Map(await Promise.all(grades));
  } finally {
    await backend.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

export interface KillFigures {
  kills: number;
  solved: number;
  /** Instances that are still there at the end. */
  left: number;
  /** Openings that have made more than one instance. */
  made_twice: number;
  /** Openings that have made an instance. */
  made: number;
}

const register = resolve('test/support/preloads/typescript-register.mjs');
const script = resolve('test/environments/fleet/killed-node.ts');

/** A node plays the solutions of 100 tasks and is killed this often at random moments. */
export async function killNode(service: FleetService, kills: number, seed = 1): Promise<KillFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-fleet-kills-'));
  const random = seededRandom(seed);
  await service.control({ ...calm, provision_s: 0.2, drop_create_reply: 0.2 });
  const finished = (): string[] => {
    try {
      return readdirSync(join(folder, 'finished'));
    } catch {
      return [];
    }
  };
  const start = () =>
    spawn(process.execPath, ['--import', register, script, service.url, service.key, service.tasks, folder], {
      stdio: ['ignore', 'inherit', 'inherit'],
    });
  try {
    for (let kill = 0; kill < kills; kill++) {
      const before = (await service.log()).creates.length;
      const child = start();
      const exit = once(child, 'exit');
      // The process takes a while to start; it is killed amid its episodes.
      while (child.exitCode === null && (await service.log()).creates.length === before) await delay(20);
      await delay(400 * random.next());
      child.kill('SIGKILL');
      await exit;
    }
    const [code] = (await once(start(), 'exit')) as [number | null];
    if (code !== 0) throw new Error(`the last process ended with ${code}`);
    const made = new Map<string, number>();
    for (const { env_variables } of (await service.log()).instances) {
      const { OPENING: opening } = env_variables;
      if (opening !== undefined) made.set(opening, (made.get(opening) ?? 0) + 1);
    }
    const outcomes = finished().map(
      (name) => JSON.parse(readFileSync(join(folder, 'finished', name), 'utf8')) as EpisodePlay['outcome'],
    );
    return {
      kills,
      solved: outcomes.filter((outcome) => outcome.status === 'graded' && outcome.value === 1).length,
      left: await runningOn(service),
      made: made.size,
      made_twice: [...made.values()].filter((instances) => instances > 1).length,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What is left after a minute: a deletion may be repeated. */
async function runningOn(service: FleetService): Promise<number> {
  const giveUpAt = Date.now() + 60_000;
  for (;;) {
    const left = (await service.log()).instances.filter(({ status }) => status !== 'stopped').length;
    if (left === 0 || Date.now() > giveUpAt) return left;
    await delay(500);
  }
}
