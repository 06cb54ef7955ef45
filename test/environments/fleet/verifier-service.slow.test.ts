// A verifier runs on the service of these tests, as `runVerifier` asks for it.
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { FleetRequest } from '../../../src/environments/fleet/fleet-request.js';
import { runVerifier, type Verdict } from '../../../src/environments/fleet/verifier.js';
import { type FleetService, fleetVenv, startFleetService } from './fleet-service.js';

const venv = await fleetVenv();
if ('skipped' in venv) console.warn(`skipped: verifiers cannot run here: ${venv.skipped}`);
const python = 'skipped' in venv ? '' : venv.python;

/** Makes an instance for the first task, plays a row of the named file there, and prints what grading needs. */
const player = `
import asyncio, json, sys
from client_drive import Drive, carry_out
url, tasks, which = sys.argv[1:]
drive = Drive(url, tasks)
task = drive.tasks[0]
row = drive.rows[which][task.key]
env = drive.make(task)
asyncio.run(carry_out(env, row["calls"]))
print(json.dumps({"key": task.key, "code": task.verifier_func, "instanceId": env.instance_id, "finalAnswer": row["final_answer"] or ""}))
`;

describe.skipIf('skipped' in venv)('a verifier on the service', { timeout: 300_000 }, () => {
  let service: FleetService;
  beforeAll(async () => {
    service = await startFleetService(python);
  }, 300_000);
  afterAll(() => service?.stop());

  const request: FleetRequest = async (method, path, body, options) => {
    const answer = await fetch(`${service.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
      ...(body ? { body: JSON.stringify(body) } : {}),
      ...(options?.signal ? { signal: options.signal } : {}),
    });
    return { status: answer.status, body: await answer.json() };
  };

  const grade = async (which: 'solutions' | 'wrong'): Promise<Verdict> => {
    const { stdout } = await promisify(execFile)(python, ['-c', player, service.url, service.tasks, which], {
      env: { ...process.env, PYTHONPATH: resolve('test/environments/fleet') },
    });
    const played = JSON.parse(stdout) as {
      key: string;
      code: string;
      instanceId: string;
      finalAnswer: string;
    };
    return runVerifier(request, {
      ...played,
      signal: new AbortController().signal,
      pause: () => Promise.resolve(),
    });
  };

  it('tells a solution from a wrong one, and gets the code once', async () => {
    expect(await grade('solutions')).toMatchObject({ kind: 'graded', value: 1 });
    expect(await grade('wrong')).toMatchObject({ kind: 'graded', value: 0 });
    expect((await service.log()).uploads).toHaveLength(1);
  });

  it.each([
    [{ fail_verify: 1 }, { reason: 'verifier_failed' }],
    [{ judge_error: 1 }, { reason: 'judge_error' }],
    [{ result_none: 1 }, { reason: 'no_number' }],
    [{ verify_http: 1 }, { reason: 'verifier_failed' }],
  ])('gives no grade while the service has %j', async (fault, verdict) => {
    await service.control(fault);
    expect(await grade('solutions')).toMatchObject({ kind: 'ungraded', ...verdict });
    await service.control(Object.fromEntries(Object.keys(fault).map((name) => [name, 0])));
  });
});
