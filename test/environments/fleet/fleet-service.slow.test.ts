// Fleet's own client drives the service of these tests, which is thereby held to what that client expects.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parseSolutions, parseTasks } from '../../../src/data/task-file.js';
import { type FleetFaults, type FleetService, fleetVenv, startFleetService } from './fleet-service.js';

const venv = await fleetVenv();
if ('skipped' in venv) console.warn(`skipped: Fleet's client cannot run here: ${venv.skipped}`);
const python = 'skipped' in venv ? '' : venv.python;

const tools = [
  ...['search_hotels', 'get_hotel', 'list_reviews', 'check_availability', 'preview_booking', 'create_booking'],
  ...['pay_booking', 'cancel_booking', 'change_guests', 'list_bookings', 'create_wishlist', 'save_property'],
  'get_profile',
];

interface Outcome {
  success: boolean;
  result?: number | { score: number };
  error?: string;
}
interface Graded {
  task: string;
  outcome: 'gold' | 'wrong' | 'nothing';
  remote: Outcome & { ms: number; stdout: string };
  local: Outcome;
}

describe.skipIf('skipped' in venv)("Fleet's client on the service", { timeout: 900_000 }, () => {
  let service: FleetService;
  beforeAll(async () => {
    service = await startFleetService(python);
  }, 300_000);
  afterAll(() => service?.stop());

  const drive = async (...args: string[]): Promise<unknown> => {
    const script = resolve('test/environments/fleet/client_drive.py');
    const places = ['--url', service.url, '--tasks', service.tasks];
    const { stdout } = await promisify(execFile)(python, [script, ...args, ...places], { maxBuffer: 1 << 26 });
    return JSON.parse(stdout);
  };

  it('makes instances, uses, keeps and ends them', async () => {
    const made = (await drive('lifecycle')) as Record<string, any>;
    expect(made).toMatchObject({ reset: true });
  });

  it('grades each of 100 tasks as its local mode does', async () => {
    const rows = (await drive('grades')) as Graded[];
    expect(rows).toHaveLength(300);
    for (const { task, outcome, remote, local } of rows) {
      const { ms: _, stdout: __, ...given } = remote;
      expect(given, task).toEqual(local);
    }
  });
});
