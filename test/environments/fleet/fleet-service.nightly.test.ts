// Fleet's own client drives the service of these tests, and so holds it to what that client expects.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseSolutions, parseTasks } from '../../../src/data/task-file.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { type FleetService, startFleetService } from './fleet-service.js';

const python = await pythonWith('fleet');

const tools = [
  ...[
    'search_hotels',
    'get_hotel',
    'list_reviews',
    'check_availability',
    'preview_booking',
    'create_booking',
  ],
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
  remote: Outcome;
  local: Outcome;
  locked: Outcome;
}

const scoreOf = ({ result }: Outcome): unknown => (typeof result === 'object' ? result.score : result);

describe.skipIf(!python)("Fleet's client on the service", () => {
  let service: FleetService;
  beforeAll(async () => {
    service = await startFleetService(python);
  });
  afterAll(() => service?.stop());

  const drive = async (script: string): Promise<unknown> => {
    const places = ['--url', service.url, '--tasks', service.tasks];
    const file = resolve('test/environments/fleet/drives', script);
    const { stdout } = await promisify(execFile)(python, [file, ...places], { maxBuffer: 1 << 26 });
    return JSON.parse(stdout);
  };

  it('gives tasks and solutions that the command reads', () => {
    const read = (name: string): string => readFileSync(join(service.tasks, name), 'utf8');
    const codes = new Set<string>();
    const tasks = parseTasks(read('tasks.json'), 'tasks.json', (_, code) => codes.add(code));
    expect(tasks).toHaveLength(100);
    expect(codes.size).toBe(100);
    const keys = tasks.map(({ task_key }) => task_key);
    for (const name of ['solutions.jsonl', 'wrong.jsonl'])
      expect(parseSolutions(read(name), name).map(({ task_key }) => task_key)).toEqual(keys);
  });

  it('makes instances, uses them, keeps them alive and ends them', async () => {
    const { recovered, heartbeat, provisioned, listed, others, ...made } = (await drive(
      'client_drive.py',
    )) as Record<string, unknown> & {
      recovered: { id: string; status: string; creates: { request_id: string }[] };
      heartbeat: { interval: number; due_in: number };
      provisioned: { states: string[]; waited: number };
    };
    const { id, creates } = recovered;
    expect(recovered.status).toBe('running');
    expect(creates).toEqual(
      [false, true].map((duplicate) => ({
        request_id: creates[0]?.request_id,
        run_id: 'drive',
        instance_id: id,
        duplicate,
      })),
    );
    expect(heartbeat.interval).toBe(60);
    expect(Math.abs(heartbeat.due_in - 60)).toBeLessThan(10);
    expect(provisioned.states).toEqual(['pending', 'running', 'running']);
    expect(provisioned.waited).toBeGreaterThanOrEqual(0.2);
    expect(listed).toEqual(others);
    expect(made).toMatchObject({
      ...{ reset: true, resources: ['current', 'seed'], health: 'healthy', rows: [0, 1] },
      described: expect.arrayContaining(['hotels', 'bookings', 'wishlists']),
      tools: { mcp: tools, 'api/v1/mcp': ['computer', 'get_profile'] },
      allowed_diff: null,
      refused_diff: { type: 'AssertionError' },
      locked: ['database is locked', 'database is locked'],
      unlocked: [[3]],
      ungated: true,
      limit: { type: 'FleetInstanceLimitError', running_instances: 1, instance_limit: 1 },
      region: { type: 'FleetRegionError', region: 'mars-1' },
      environment: { type: 'FleetEnvironmentNotFoundError', env_key: 'nowhere' },
      // The client looks for "environment" in the message before it looks for "version".
      version: { message: "Version 'v9.9.9' not found for environment 'harbour'" },
      data_version: { type: 'FleetVersionNotFoundError', version: 'v9.9.9' },
      key: { type: 'FleetAuthenticationError' },
      regions: ['us-west-1', 'us-east-1', 'eu-west-2'],
      environments: ['harbour'],
      account: [1, 1],
      kept: ['running', 'running', 'running', 'stopped', 'stopped'],
      deleted: ['running', 'stopped'],
      closed: ['stopped', 'stopped'],
      left: 0,
    });
  });

  it("gives each fault as the test asked for it, and outlives each verifier's own", async () => {
    const ranWell = (result: unknown, printed = '', isCached = false): unknown[] => [
      ...[true, result, null, printed, isCached],
    ];
    const failed = (error: string, printed = '', isCached = false): unknown[] => [
      ...[false, null, error, printed, isCached],
    ];
    expect(await drive('fault_drive.py')).toMatchObject({
      creates: { refused: 'FleetAPIError', tries: 4, request_ids: 1, made: 0 },
      rates: { equal: true, struck: 14 },
      calls: {
        ...{ dropped: 'RemoteProtocolError', failed: 500, locked: 'error: database is locked' },
        logged: ['Dropped', null],
        slow: true,
        exists: "error: 409: a wishlist 'Dropped' exists",
        made: '{"wishlist_id":5,"name":"Failed"}',
        missing: 'error: Booking 999 not found',
        invalid: 'error: 2 validation errors for call[pay_booking]',
      },
      gates: {
        ...{ foreign_session: 404, wrong_key: 401, without_token: 404, with_token: 200, ended: [404, 404] },
      },
      repeats: { equal: true, longest: expect.closeTo(21_461, -4) },
      deletes: { refused: 'FleetAPIError', kept: 'running', closed: ['stopped', 'stopped'], struck: true },
      verdicts: {
        none: ranWell(1),
        fail_verify: failed('RuntimeError', '', true),
        judge_error: ranWell(0, 'JUDGE ERROR: the model did not answer\n', true),
        result_none: ranWell(null, '', true),
        verify_http: 'FleetAPIError',
        locked: ranWell(0, '', true),
        canaries: [
          ['database is locked', 'database is locked'],
          [null, null],
        ],
        uploads: 1,
      },
      wrongs: {
        raises: failed('KeyError', 'before\n'),
        unserialisable: failed('TypeError'),
        exits: failed('RuntimeError'),
        leaves: failed('RuntimeError'),
        after: ranWell(true),
        endless: { type: 'TimeoutError', message: 'Verifier execution timed out after 1 seconds' },
        unknown_bundle: `Bundle not found: ${'0'.repeat(64)}`,
        wrong_hash: expect.stringMatching(/^The bundle has the hash [0-9a-f]{64}, not 0{64}$/),
        no_zip: 'The bundle is no zip of texts: File is not a zip file',
        other_array: expect.stringMatching(/^args hold .*, and args_array \[\]$/),
        no_function: "module 'verifier' has no attribute 'missing'",
        no_instance: "Instance 'gone' is not running",
        at_last: ranWell(true),
      },
      expired: ['stopped', 0],
    });
  });

  it('grades each of 100 tasks as its local mode does', async () => {
    const rows = (await drive('grade_drive.py')) as Graded[];
    expect(rows).toHaveLength(300);
    for (const { task, outcome, remote, local } of rows) {
      expect(remote, `${task} ${outcome}`).toEqual(local);
      expect(scoreOf(remote), `${task} ${outcome}`).toBe(outcome === 'gold' ? 1 : 0);
    }
    // As with Fleet's own verifiers, at least 17 of 20 cannot tell a locked database from a task that was not done.
    const locked = rows.filter(({ outcome }) => outcome === 'gold').map(({ locked }) => locked);
    expect(locked.filter((each) => scoreOf(each) === 0)).toHaveLength(90);
    expect(locked.filter(({ success }) => !success)).toHaveLength(10);
    expect((await service.log()).counts['open_instances']).toBe(0);
  });
});
