// One episode on an instance: calls over MCP, an optional answer by tool, and the grade of the task's verifier.
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeNow } from '../../base/awake-clock.js';
import { Backoff } from '../../base/backoff.js';
import type { EnvironmentReason } from '../../spec/records/episode.js';
import type { Task, ToolCall, ToolSpec } from '../../spec/records/task.js';
import { type Environment, EnvironmentError, type Grade, type ToolResult } from '../environment.js';
import { ExclusiveCalls, gradeOf } from '../episode-calls.js';
import { answerToolName, textResult } from '../tool-results.js';
import type { FleetRequest } from './fleet-request.js';
import type { InstanceApi } from './instance-api.js';
import type { McpSession } from './mcp-session.js';
import type { Orchestrator } from './orchestrator.js';
import { runVerifier } from './verifier.js';

interface EpisodeParts {
  task: Task;
  /** Python source of the task's verifier. */
  code: string;
  tools: readonly ToolSpec[];
  instanceId: string;
  api: InstanceApi;
  session: McpSession;
  request: FleetRequest;
  orchestrator: Orchestrator;
  region?: string;
  callTimeoutMs: number;
  /** When Fleet ends the instance, in milliseconds since 1970. */
  endsAt: number;
  onClose: () => Promise<void>;
}

/** A tool that prompts of tasks name, but that no instance has; it is answered here. */
const answerTool: ToolSpec = {
  name: answerToolName,
  description: 'Submits the final answer of the task, which ends it.',
  input_schema: {
    type: 'object',
    properties: { answer: { type: 'string', description: 'the final answer' } },
    required: ['answer'],
  },
};
/** Reasons for a failed grade after which another try may succeed. */
const passing = new Set(['canary', 'unsteady']);
const triesToGrade = 3;
/** So short that, with the requests of one more try, it is less than the time without progress after which an attempt ends. */
const gradeWithinMs = 12 * 60_000;
const gradePauses: [number, number] = [1_000, 8_000];

export function fleetEpisode(parts: EpisodeParts): Environment {
  const { task, session, api, callTimeoutMs } = parts;
  const asksForAnswer =
    task.prompt.includes(answerTool.name) && !parts.tools.some(({ name }) => name === answerTool.name);
  const asksDatabases = /\bdb\b|\.state\s*\(/u.test(parts.code);
  let submitted: string | undefined;
  const calls = new ExclusiveCalls();
  let closing: Promise<void> | undefined;
  const closed = new AbortController();

  async function callTool(call: ToolCall): Promise<ToolResult> {
    if (asksForAnswer && call.name === answerTool.name) {
      const { answer } = call.arguments;
      if (typeof answer !== 'string') return textResult('answer: must be a text', true);
      submitted = answer;
      return { ...textResult('The answer is submitted.'), ends: true };
    }
    try {
      return await session.call(call, callTimeoutMs);
    } catch (error) {
      throw error instanceof EnvironmentError ? await judged(error) : error;
    }
  }

  /** Decides whether a lost answer is charged to the episode: it is if Fleet answers and the call timed out or the instance has ended. */
  async function judged(lost: EnvironmentError): Promise<EnvironmentError> {
    const status = await parts.orchestrator.status(parts.instanceId).catch(() => undefined);
    if (status === undefined) return lost;
    const charged = (reason: EnvironmentReason, message: string): EnvironmentError =>
      new EnvironmentError('failed', reason, message, { cause: lost });
    // Before that time, Fleet ends an instance only if it gets no heartbeats, for example while this process is stopped.
    if (status !== 'running')
      return Date.now() < parts.endsAt
        ? lost
        : charged('expired', `the instance has ended (${status ?? 'unknown to Fleet'})`);
    return lost.reason === 'timeout' ? charged('timeout', lost.message) : lost;
  }

  async function grade(finalAnswer: string | undefined): Promise<Grade> {
    const pauses = new Backoff(gradePauses);
    const giveUpAt = awakeNow() + gradeWithinMs;
    for (let tries = 1; ; tries++) {
      try {
        return await confirmed(finalAnswer, giveUpAt);
      } catch (error) {
        if (!(error instanceof EnvironmentError) || !passing.has(error.reason)) throw error;
        if (tries >= triesToGrade || awakeNow() > giveUpAt)
          throw await parts.orchestrator.chargeable(error, error.reason, parts.instanceId);
      }
      await sleep(pauses.next(), undefined, { signal: closed.signal });
    }
  }

  /** A database may be locked between two queries unnoticed, so a failing grade must be given twice. */
  async function confirmed(finalAnswer: string | undefined, giveUpAt: number): Promise<Grade> {
    const grade = await gradeOnce(finalAnswer, giveUpAt);
    const { value } = grade.outcome;
    if (value > 0) return grade;
    if (awakeNow() > giveUpAt)
      throw new EnvironmentError('failed', 'unsteady', `no time is left to confirm the reward ${value}`);
    const again = (await gradeOnce(finalAnswer, giveUpAt)).outcome.value;
    if (again === value) return grade;
    throw new EnvironmentError('failed', 'unsteady', `the verifier gives ${value}, and then ${again}`);
  }

  async function gradeOnce(finalAnswer: string | undefined, giveUpAt: number): Promise<Grade> {
    const { verifier_runtime_version: runtimeVersion } = task;
    await api.queryAll(asksDatabases);
    const asked = runVerifier(parts.request, {
      ...{ key: task.task_key, code: parts.code, instanceId: parts.instanceId },
      ...(finalAnswer === undefined ? {} : { finalAnswer }),
      signal: closed.signal,
      giveUpAt,
      ...(parts.region === undefined ? {} : { region: parts.region }),
      ...(runtimeVersion === undefined ? {} : { runtimeVersion }),
    });
    const verdict = await api.queryDuring(asked).catch(async (error: unknown) => {
      throw error instanceof EnvironmentError && error.kind === 'unavailable'
        ? await parts.orchestrator.chargeable(error, 'verifier_failed', parts.instanceId)
        : error;
    });
    await api.queryAgain();
    if (verdict.kind === 'ungraded') {
      const error = new EnvironmentError('failed', verdict.reason, verdict.message);
      throw await parts.orchestrator.chargeable(error, verdict.reason, parts.instanceId);
    }
    return gradeOf([verdict.value], { ...verdict, success_at: 1, giver: 'the verifier gives' });
  }

  return {
    tools: asksForAnswer ? withAnswerTool(parts.tools) : parts.tools,
    callTool: (call) => calls.run(() => callTool(call)),
    // Without an answer none is sent, because some verifiers take an empty answer for a wrong one.
    grade: ({ finalAnswer }) => calls.run(() => grade(asksForAnswer ? submitted : finalAnswer || undefined)),
    close() {
      calls.end();
      closed.abort();
      closing ??= session.close().then(parts.onClose);
      return closing;
    },
  };
}

/** Each list of tools is extended only once, because prompts are cached by the identity of the list. */
const extended = new WeakMap<readonly ToolSpec[], readonly ToolSpec[]>();

function withAnswerTool(tools: readonly ToolSpec[]): readonly ToolSpec[] {
  const list = extended.get(tools) ?? [...tools, answerTool];
  extended.set(tools, list);
  return list;
}
