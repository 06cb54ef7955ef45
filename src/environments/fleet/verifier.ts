// Lets Fleet run a verifier, with the same requests as Fleet's Python SDK.
//
// The code travels as a zip that Fleet keeps by its sha256, so that most requests do not carry it. Running a verifier twice is
// harmless, because it only reads the instance.
import { isObject } from '../../base/json.js';
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeNow } from '../../base/awake-clock.js';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import { sha256Hex } from '../../base/sha256.js';
import type { EnvironmentReason } from '../../spec/records/episode.js';
import { EnvironmentError } from '../environment.js';

import { explanationOf } from './explanation.js';
import type { FleetAnswer, FleetRequest, FleetRequestOptions } from './fleet-request.js';
import { Pair, pickle } from './pickle.js';
import { verifierEntry } from './verifier-entry.js';
import { zip } from './zip.js';

/** Fleet takes 1 to 300; its SDK asks for 30, which is short for a verifier that asks a language model. */
const verifierTimeoutS = 120;
/** Time that Fleet may need in addition to the verifier's own. */
const overheadMs = 60_000;
const checkTimeoutMs = 30_000;
const mostTries = 4;
const firstPauseMs = 3000;

export interface VerifierRun {
  /** The verifier's name at Fleet: the task's key. */
  key: string;
  /** Python source. */
  code: string;
  /** Fleet's runtime that the verifier was written for. */
  runtimeVersion?: string;
  instanceId: string;
  /** The final answer; sent if the verifier has a parameter for it. */
  finalAnswer?: string;
  region?: string;
  signal: AbortSignal;
  /** After this reading of `awakeNow` no further try begins. */
  giveUpAt?: number;
  /** Waits between two tries; for tests. */
  pause?: (ms: number, signal: AbortSignal) => Promise<void>;
}

export type Verdict =
  | {
      kind: 'graded';
      /** The value that the verifier returned, with 1 for true; any finite number, mostly from 0 to 1. */
      value: number;
      /** What the verifier printed, shortened; may be empty. */
      explanation: string;
      /** Fleet's name of this run; null if it gave none. */
      executionId: string | null;
    }
  | {
      kind: 'ungraded';
      /** `no_number`: the verifier ran and returned no number; Python's None is no number. */
      reason: 'verifier_failed' | 'judge_error' | 'no_number';
      message: string;
    };

/** `again`: another try may give another result. */
interface Attempt {
  result: Verdict | EnvironmentError;
  again: boolean;
}

/** For each server (by the function that sends requests to it), the digests of the bundles that it has. */
const uploaded = new WeakMap<FleetRequest, Set<string>>();

/**
 * Rejects with an `EnvironmentError`: `failed` (`unauthorized`) if Fleet refuses the key, `failed` (`grade`) if the code defines no
 * function, `unavailable` if Fleet could not be reached or was overloaded at the last of 4 tries. Rejects with the signal's reason.
 */
export async function runVerifier(request: FleetRequest, run: VerifierRun): Promise<Verdict> {
  const { signal, giveUpAt = Infinity, pause = (ms) => sleep(ms, undefined, { signal }) } = run;
  const execute = executor(request, run);
  for (let tries = 1; ; tries++) {
    signal.throwIfAborted();
    const { result, again } = await attempt(execute);
    if (!again || tries === mostTries || awakeNow() > giveUpAt) {
      if (result instanceof EnvironmentError) throw result;
      return result;
    }
    await pause(firstPauseMs * 2 ** (tries - 1), signal).catch((error: unknown) => {
      signal.throwIfAborted();
      throw error;
    });
  }
}

async function attempt(execute: () => Promise<FleetAnswer>): Promise<Attempt> {
  try {
    return readAnswer(await execute());
  } catch (error) {
    if (!(error instanceof EnvironmentError) || error.kind !== 'unavailable') throw error;
    return { result: error, again: true };
  }
}

/** The returned function has the verifier run once, and sends the code if Fleet does not have it. */
function executor(request: FleetRequest, run: VerifierRun): () => Promise<FleetAnswer> {
  const { key, code, runtimeVersion, instanceId, finalAnswer, region = 'us-west-1', signal } = run;
  const entry = verifierEntry(code);
  const bundle = zip([
    ['requirements.txt', 'fleet-python'],
    ['verifier.py', code],
  ]);
  const sha256 = sha256Hex(bundle);
  const environment = { env: instanceId };
  // Without an answer, an empty one is sent only to a verifier that requires an answer.
  const answer = finalAnswer ?? (entry.required.includes('final_answer') ? '' : undefined);
  const kwargs = answer !== undefined && entry.accepts('final_answer') ? { final_answer: answer } : {};
  const question = {
    key,
    sha256,
    args: pickle({ args: new Pair(null, environment), kwargs }).toString('base64'),
    args_array: [environment],
    function_name: entry.name,
    timeout: verifierTimeoutS,
    region,
  };
  const runtime = runtimeVersion ? { verifier_runtime_version: runtimeVersion } : {};
  const known = uploaded.get(request) ?? new Set<string>();
  uploaded.set(request, known);

  const ask = async (
    method: 'GET' | 'POST',
    path: string,
    body: object | undefined,
    options: FleetRequestOptions,
  ): Promise<FleetAnswer> => {
    const answer = await request(method, path, body, { ...options, signal });
    if (answer.status === 401 || answer.status === 403)
      throw new EnvironmentError(
        'failed',
        'unauthorized',
        `Fleet refuses to run verifier ${key} (${answer.status}): ${bodyText(answer)}`,
      );
    return answer;
  };
  const isKnown = async (): Promise<boolean> => {
    if (known.has(sha256)) return true;
    const path = `/v1/verifiers/check?sha256=${sha256}`;
    const answer = await ask('GET', path, undefined, { timeoutMs: checkTimeoutMs });
    return answer.status < 300 && fieldsOf(answer).success === true;
  };
  const post = (withCode: boolean): Promise<FleetAnswer> => {
    const body = { ...question, ...(withCode ? { bundle: bundle.toString('base64') } : {}), ...runtime };
    return ask('POST', '/v1/verifiers/execute', body, { timeoutMs: verifierTimeoutS * 1000 + overheadMs });
  };
  return async () => {
    const withCode = !(await isKnown());
    let answer = await post(withCode);
    if (!withCode && isNotFound(answer)) {
      known.delete(sha256);
      answer = await post(true);
    }
    if (answer.status < 300 && fieldsOf(answer).success === true) known.add(sha256);
    return answer;
  };
}

/** True if the answer says that Fleet does not have the bundle. */
function isNotFound(answer: FleetAnswer): boolean {
  if (answer.status >= 400) return answer.status === 404 || /not found/iu.test(bodyText(answer));
  return fieldsOf(answer).success === false && /(bundle|verifier) not found/iu.test(errorOf(answer));
}

function readAnswer(answer: FleetAnswer): Attempt {
  const { status } = answer;
  const message = `Fleet answers ${status}: ${bodyText(answer)}`;
  if (status === 429) return unavailable('capacity', message);
  if (status === 504) return unavailable('timeout', message);
  if (status === 502 || status === 503) return unavailable('connect', message);
  if (status >= 300) return ungraded('verifier_failed', message, status >= 500);

  const { success, result, stdout, execution_id } = fieldsOf(answer);
  const printed = typeof stdout === 'string' ? withoutKnownSecrets(stdout) : '';
  const judgeError = /^JUDGE ERROR:.*$/mu.exec(printed)?.[0];
  if (judgeError !== undefined) return ungraded('judge_error', judgeError, true);
  if (success !== true) return ungraded('verifier_failed', errorOf(answer), true);
  const value = numberOf(result);
  if (value === null) {
    const returned = JSON.stringify(result) ?? 'nothing';
    return ungraded('no_number', `the verifier returned no number: ${returned}`, false);
  }
  const locked = /^.*database (?:table )?is locked.*$/imu.exec(printed)?.[0];
  if (locked !== undefined && value <= 0) return ungraded('verifier_failed', locked, true);
  const executionId = typeof execution_id === 'string' ? execution_id : null;
  return {
    result: { kind: 'graded', value, explanation: explanationOf(printed), executionId },
    again: false,
  };
}

function unavailable(reason: EnvironmentReason, message: string): Attempt {
  return { result: new EnvironmentError('unavailable', reason, message), again: true };
}

function ungraded(
  reason: Extract<Verdict, { kind: 'ungraded' }>['reason'],
  message: string,
  again: boolean,
): Attempt {
  return {
    result: { kind: 'ungraded', reason, message: withoutKnownSecrets(message).slice(0, 1000) },
    again,
  };
}

function numberOf(result: unknown): number | null {
  if (typeof result === 'boolean') return result ? 1 : 0;
  const value = isObject(result) ? result.score : result;
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

/** Why the verifier failed, as Fleet says. */
function errorOf(answer: FleetAnswer): string {
  const { error } = fieldsOf(answer);
  if (!isObject(error)) return `Fleet gives no error: ${bodyText(answer)}`;
  const parts = [error.type, error.message].filter((part) => typeof part === 'string' && part !== '');
  return parts.length > 0 ? parts.join(': ') : JSON.stringify(error);
}

function bodyText({ body }: FleetAnswer): string {
  const text = typeof body === 'string' ? body : (JSON.stringify(body) ?? '');
  return withoutKnownSecrets(text).slice(0, 500);
}

function fieldsOf({ body }: FleetAnswer): Record<string, unknown> {
  return isObject(body) ? body : {};
}
