import { describe, expect, it } from 'vitest';
import { EnvironmentError } from '../../../src/environments/environment.js';
import { keepSecret } from '../../../src/base/known-secrets.js';
import type { FleetAnswer, FleetRequest } from '../../../src/environments/fleet/fleet-request.js';
import { runVerifier, type Verdict, type VerifierRun } from '../../../src/environments/fleet/verifier.js';
import { built, goldens, shortened } from './goldens.js';

interface Sent {
  method: string;
  path: string;
  body?: Record<string, unknown>;
}

type Answer = FleetAnswer | EnvironmentError;

const ok = (fields: object = {}): FleetAnswer => ({
  status: 200,
  body: { success: true, result: 1, execution_id: 'run-1', execution_time_ms: 5, stdout: '', ...fields },
});
const failed = (message = 'boom'): FleetAnswer =>
  ok({ success: false, result: null, error: { type: 'ValueError', message, traceback: '' } });
const lost = new EnvironmentError('unavailable', 'connect', 'no answer');

/** Executions get the answers in turn, the last one again and again. */
class Fleet {
  readonly sent: Sent[] = [];
  readonly pauses: number[] = [];
  readonly timeouts: (number | undefined)[] = [];
  readonly #answers: Answer[];
  readonly #check: Answer;

  constructor(answers: Answer[], check: Answer = { status: 200, body: { success: false } }) {
    this.#answers = [...answers];
    this.#check = check;
  }

  readonly request: FleetRequest = (method, path, body, options) => {
    this.sent.push({ method, path, ...(body ? { body: body as Record<string, unknown> } : {}) });
    this.timeouts.push(options?.timeoutMs);
    const next = (): Answer | undefined =>
      this.#answers.length > 1 ? this.#answers.shift() : this.#answers[0];
    const answer = method === 'GET' ? this.#check : (next() as Answer);
    return answer instanceof EnvironmentError ? Promise.reject(answer) : Promise.resolve(answer);
  };

  get executions(): Record<string, unknown>[] {
    return this.sent.flatMap(({ method, body }) => (method === 'POST' && body ? [body] : []));
  }

  run(run: Partial<VerifierRun> = {}): Promise<Verdict> {
    return runVerifier(this.request, {
      key: 'task_a1',
      code: goldens.code,
      instanceId: goldens.instance,
      signal: new AbortController().signal,
      pause: (ms) => {
        this.pauses.push(ms);
        return Promise.resolve();
      },
      ...run,
    });
  }
}

const known: FleetAnswer = { status: 200, body: { success: true } };
const notFound: FleetAnswer = { status: 404, body: { detail: 'Bundle not found' } };

it('leaves no part of a secret where a text is cut', async () => {
  const secret = 'a-secret-of-the-verifier-test';
  keepSecret(secret);
  const long = (most: number): string => `${'x'.repeat(most - 10)}${secret}`;
  const answers = [
    { status: 400, body: long(500) },
    failed(long(1000 - 'ValueError: '.length)),
    ok({ stdout: `${secret}${'x'.repeat(990)}` }),
    ok({ stdout: `>>> ERROR_ACCUMULATOR >>>\n['${long(990)}']\n<<< ERROR_ACCUMULATOR <<<\n` }),
  ];
  for (const answer of answers)
    expect(JSON.stringify(await new Fleet([answer]).run())).not.toMatch(/a-secret|verifier-test/);
});

describe('requests', () => {
  it.each(goldens.asked.map((asked) => [JSON.stringify(asked.answer), asked]))(
    'are those of the SDK: answer %s',
    async (_, asked) => {
      const fleet = new Fleet([ok()], { status: 200, body: { success: asked.known } });
      const answer = built(asked.answer) as string | null;
      await fleet.run({
        ...(answer === null ? {} : { finalAnswer: answer }),
        ...(asked.runtime ? { runtimeVersion: asked.runtime } : {}),
      });
      const [check, execute] = fleet.sent;
      const sha256 = execute?.body?.sha256 as string;
      expect(check?.path).toBe(`/v1/verifiers/check?sha256=${sha256}`);
      const args = shortened(Buffer.from(execute?.body?.args as string, 'base64'));
      const [, expected] = asked.requests;
      // The SDK asks for 30 s; its zip holds the time at which it was made.
      const bundle = asked.known ? {} : { bundle: execute?.body?.bundle };
      const body = { ...expected?.body, sha256, timeout: 120, ...bundle };
      expect({ ...execute, body: { ...execute?.body, args } }).toEqual({ ...expected, body });
      expect(Object.keys(execute?.body ?? {})).toEqual(Object.keys(expected?.body ?? {}));
      expect(fleet.sent).toHaveLength(2);
    },
  );

  it('wait longer than the verifier may take', async () => {
    const fleet = new Fleet([ok()]);
    await fleet.run();
    expect(fleet.timeouts[1]).toBeGreaterThan((fleet.executions[0]?.timeout as number) * 1000);
  });

  it('leave out an answer that the verifier does not take', async () => {
    const fleet = new Fleet([ok()]);
    await fleet.run({ code: 'def verify(env): return 1', finalAnswer: 'secret' });
    expect(Buffer.from(fleet.executions[0]?.args as string, 'base64').toString()).not.toContain('secret');
  });

  it('name another region if one is given', async () => {
    const fleet = new Fleet([ok()]);
    await fleet.run({ region: 'eu-west-2' });
    expect(fleet.executions[0]?.region).toBe('eu-west-2');
  });

  it('are not made for code without a function', async () => {
    const fleet = new Fleet([ok()]);
    await expect(fleet.run({ code: 'x = 1' })).rejects.toMatchObject({ kind: 'failed', reason: 'grade' });
    expect(fleet.sent).toEqual([]);
  });
});

describe('the code', () => {
  const carried = (fleet: Fleet): boolean[] => fleet.executions.map((body) => 'bundle' in body);

  it('is sent once in a process, and checked for once', async () => {
    const fleet = new Fleet([ok()]);
    await fleet.run();
    await fleet.run();
    expect(fleet.sent.map(({ method }) => method)).toEqual(['GET', 'POST', 'POST']);
    expect(carried(fleet)).toEqual([true, false]);
    const other = new Fleet([ok()]);
    await other.run();
    expect(carried(other)).toEqual([true]);
  });

  it.each([
    ['404', notFound],
    ['400', { status: 400, body: { detail: 'Verifier not found' } }],
    ['a failure', failed('Bundle not found')],
  ])('is sent if the check was wrong and the answer is %s', async (_, answer) => {
    const fleet = new Fleet([answer, ok()], known);
    expect(await fleet.run()).toMatchObject({ kind: 'graded', value: 1 });
    expect(carried(fleet)).toEqual([false, true]);
    expect(fleet.pauses).toEqual([]);
  });

  it('is sent again if Fleet has forgotten it', async () => {
    const fleet = new Fleet([ok(), notFound, ok()]);
    await fleet.run();
    expect(await fleet.run()).toMatchObject({ kind: 'graded' });
    expect(carried(fleet)).toEqual([true, false, true]);
  });

  it('stays forgotten if the verifier then fails', async () => {
    const fleet = new Fleet([ok(), notFound, failed(), ok()]);
    await fleet.run();
    await fleet.run();
    expect(carried(fleet)).toEqual([true, false, true, true]);
  });

  it('is sent if the check fails', async () => {
    const fleet = new Fleet([ok()], { status: 500, body: 'oops' });
    await fleet.run();
    expect(carried(fleet)).toEqual([true]);
  });

  it('does not count as sent until a verifier has run', async () => {
    const fleet = new Fleet([failed(), ok()]);
    await fleet.run();
    expect(carried(fleet)).toEqual([true, true]);
  });
});

describe('a verdict', () => {
  it.each([
    [1, 1],
    [0, 0],
    [0.25, 0.25],
    [-3, -3],
    [true, 1],
    [false, 0],
    [{ score: 0.5, reason: 'x' }, 0.5],
  ])('of %j is %d', async (result, value) => {
    const fleet = new Fleet([
      ok({ result, stdout: ">>> SUCCESS_ACCUMULATOR >>>\n['a']\n<<< SUCCESS_ACCUMULATOR <<<" }),
    ]);
    const verdict = { kind: 'graded', value, explanation: 'right: a', executionId: 'run-1' };
    expect(await fleet.run()).toEqual(verdict);
  });

  it('is none with the reason for people', async () => {
    const message = 'the verifier returned no number: null';
    expect(await new Fleet([ok({ result: null })]).run()).toMatchObject({ message });
  });

  it('needs no name and no text', async () => {
    const fleet = new Fleet([{ status: 200, body: { success: true, result: 1, stdout: null } }]);
    expect(await fleet.run()).toEqual({ kind: 'graded', value: 1, explanation: '', executionId: null });
  });

  it.each([null, undefined, NaN, Infinity, '1', [1], {}, { score: '1' }, { score: null }, { score: true }])(
    'is none for %j, without another try',
    async (result) => {
      const fleet = new Fleet([ok({ result })]);
      expect(await fleet.run()).toMatchObject({ kind: 'ungraded', reason: 'no_number' });
      expect(fleet.executions).toHaveLength(1);
    },
  );

  const judge = ok({ stdout: 'x\nJUDGE ERROR: overloaded\n' });
  it.each([
    ['a failure', failed(), { reason: 'verifier_failed', message: 'ValueError: boom' }],
    ['a judge error', judge, { reason: 'judge_error', message: 'JUDGE ERROR: overloaded' }],
    [
      'a broken server',
      { status: 500, body: 'oops' },
      { reason: 'verifier_failed', message: 'Fleet answers 500: oops' },
    ],
    ['an answer that is no JSON', { status: 200, body: 'NaN' }, { reason: 'verifier_failed' }],
    ['a failure without an error', ok({ success: false }), { reason: 'verifier_failed' }],
  ])('is none after 4 tries with %s', async (_, answer, verdict) => {
    const fleet = new Fleet([answer]);
    expect(await fleet.run()).toMatchObject({ kind: 'ungraded', ...verdict });
    expect(fleet.executions).toHaveLength(4);
    expect(fleet.pauses).toEqual([3000, 6000, 12_000]);
  });

  it.each([
    ['a failure', failed()],
    ['a judge error', judge],
    ['a broken server', { status: 500, body: '' }],
    ['a full server', { status: 429, body: '' }],
    ['a lost answer', lost],
  ])('comes from a later try after %s', async (_, answer) => {
    const fleet = new Fleet([answer, answer, answer, ok()]);
    expect(await fleet.run()).toMatchObject({ kind: 'graded' });
    expect(fleet.pauses).toEqual([3000, 6000, 12_000]);
  });

  it('is none at once if Fleet refuses the request', async () => {
    const fleet = new Fleet([{ status: 422, body: { detail: 'timeout' } }]);
    const message = 'Fleet answers 422: {"detail":"timeout"}';
    expect(await fleet.run()).toEqual({ kind: 'ungraded', reason: 'verifier_failed', message });
    expect(fleet.executions).toHaveLength(1);
  });

  it('a line within other text is no judge error', async () => {
    expect(await new Fleet([ok({ stdout: 'no JUDGE ERROR: here' })]).run()).toMatchObject({ kind: 'graded' });
  });
});

describe('an outage', () => {
  it.each([
    ['no answer', lost, 'connect'],
    ['429', { status: 429, body: '' }, 'capacity'],
    ['502', { status: 502, body: '' }, 'connect'],
    ['503', { status: 503, body: '' }, 'connect'],
    ['504', { status: 504, body: '' }, 'timeout'],
  ])('is not charged to the episode: %s four times', async (_, answer, reason) => {
    const fleet = new Fleet([answer]);
    await expect(fleet.run()).rejects.toMatchObject({
      name: 'EnvironmentError',
      kind: 'unavailable',
      reason,
    });
    expect(fleet.executions).toHaveLength(4);
  });

  it('a check without an answer is a try, too', async () => {
    const fleet = new Fleet([ok()], lost);
    await expect(fleet.run()).rejects.toBe(lost);
    expect(fleet.sent).toHaveLength(4);
  });

  it.each([401, 403])('%d ends it: the key is wrong', async (status) => {
    const refused: FleetAnswer = { status, body: { detail: 'bad key' } };
    for (const fleet of [new Fleet([refused]), new Fleet([ok()], refused)]) {
      await expect(fleet.run()).rejects.toMatchObject({ kind: 'failed', reason: 'unauthorized' });
      expect(fleet.pauses).toEqual([]);
    }
  });

  it('a signal ends the pause before the next try', async () => {
    const stop = new AbortController();
    const fleet = new Fleet([failed()]);
    const { request } = fleet;
    const ended = runVerifier(request, {
      key: 'k',
      code: goldens.code,
      instanceId: 'i',
      signal: stop.signal,
    });
    setImmediate(() => stop.abort(new Error('released')));
    await expect(ended).rejects.toThrow('released');
    expect(fleet.executions).toHaveLength(1);
  });
});
