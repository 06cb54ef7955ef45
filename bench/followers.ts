// What following a run costs it, and what kills of the follower cost those who are told: whole processes of a stack, Slack by its rules.
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { startTraining } from '../src/cli/train/start-training.js';
import { newEventCursor, readRunEvents, type RunEnding } from '../src/followers/run-events.js';
import { markId } from '../src/integrations/slack/thread-record.js';
import { eventFileName } from '../src/integrations/tracking/tensorboard/tensorboard-sink.js';
import type { RunSpec } from '../src/spec/run-spec.js';
import type { ObjectStore } from '../src/store/objects/object-store.js';
import { ownersFolder } from '../src/store/objects/layout.js';
import { openStore } from '../src/store/open-store.js';
import { readSequence } from '../src/store/records/records.js';
import { readUpdate } from '../src/store/runs/run-records.js';
import { findEngineBinary } from '../src/workers/process/engine-binary.js';
import { freePort } from '../src/stack/free-port.js';
import { type Stack, type StackScripts, startStack } from '../src/stack/stack.js';
import { openConnection } from '../src/workers/temporal/temporal-connection.js';
import { SlackServer } from '../test/support/servers/slack-server.js';
import { eventIds, expectedPoints } from '../test/support/stored-points.js';
import { median } from './figure.js';
import { childOf, cpuMs } from './process-memory.js';
import { steadyRun } from './steady-run.js';

export interface FollowersPlan {
  /** Of each run. */
  steps: number;
  /** Pairs of runs, one that is told of to nobody who answers and one that is not told of. */
  pairs: number;
  kills: number;
  deadlineMs: number;
  scripts?: Partial<StackScripts>;
}

export interface FollowersFigures {
  /** Median step with all that are told hanging, and of the same run that is told to nobody. */
  hanging_step_ms: number;
  quiet_step_ms: number;
  /** Kinds of activities, signals and updates in the history of the one that the other has not. */
  awaited_by_steps: number;
  /** Of the follower, over that of all that make steps: the median of the runs. */
  cpu_share: number;
  /** Of the first run, with which the follower loads what it tells with. */
  first_cpu_share: number;
  /** That met a follower which had not told everything. */
  kills: number;
  slack_expected: number;
  slack_doubled: number;
  slack_missing: number;
  points_expected: number;
  points_doubled: number;
  points_missing: number;
}

/** Steps before these begin where processes are started yet. */
const firstCountedStep = 10;

export async function measureFollowers(
  plan: FollowersPlan,
  say: (message: string) => void,
): Promise<FollowersFigures> {
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-bench-followers-'));
  const slack = await SlackServer.start();
  // As a Python whose package never answers, and never reads; it ends with a follower that is killed.
  const python = join(folder, 'hanging-python');
  writeFileSync(python, '#!/bin/sh\nwhile kill -0 "$PPID"; do sleep 5 </dev/null >/dev/null 2>&1; done\n');
  chmodSync(python, 0o755);
  const given = { SLACK_API_URL: slack.url, SLACK_BOT_TOKEN: slack.token, LONGHAUL_WANDB_PYTHON: python };
  const before = Object.keys(given).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, given);
  const stack = await startStack({
    folder: join(folder, 'stack'),
    engine: findEngineBinary(),
    log: () => undefined,
    gaveUp: (error) => say(error.message),
    temporalPort: await freePort(),
    uiPort: await freePort(),
    ...(plan.scripts ? { scripts: plan.scripts } : {}),
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  try {
    const bench: Bench = {
      ...{ folder, slack, stack, say, plan },
      client: new Client({ connection }),
      store: await openStore(stack.addresses.store),
    };
    return { ...(await whileAllHang(bench)), ...(await throughKills(bench)) };
  } finally {
    await connection.close();
    await stack.stop();
    await slack.stop();
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    await rm(folder, { recursive: true, force: true });
  }
}

interface Bench {
  folder: string;
  slack: SlackServer;
  stack: Stack;
  client: Client;
  store: ObjectStore;
  plan: FollowersPlan;
  say: (message: string) => void;
}

const everyone: Pick<RunSpec, 'tracking' | 'slack'> = {
  tracking: { metrics_jsonl: true, tensorboard: true, wandb: { mode: 'online' } },
  slack: { channel: '#training' },
};
const trackingOf = ({ folder }: Bench): string => join(folder, 'stack', 'follower', 'tracking');
const pidOf = ({ stack }: Bench, name: string): number | null =>
  stack.processes.find((one) => one.name === name)?.pid ?? null;

async function whileAllHang(bench: Bench) {
  const { slack, plan, say, client } = bench;
  slack.fault = () => ({ kind: 'hang', stored: false });
  const steps = { hanging: [] as number[], quiet: [] as number[] };
  const shares: number[] = [];
  const kinds = { hanging: new Set<string>(), quiet: new Set<string>() };
  for (let pair = 1; pair <= plan.pairs; pair++)
    for (const how of ['quiet', 'hanging'] as const) {
      const name = `${how}-${pair}`;
      const hang = how === 'hanging';
      // Files that refuse at once: a disk that hangs cannot be had without a kernel's part in it.
      if (hang) for (const path of filesOf(bench, name)) execFileSync('mkfifo', [path]);
      const atFirst = hang ? cpuOf(bench) : null;
      const follower = pidOf(bench, 'follower');
      const told = hang ? everyone : { tracking: { metrics_jsonl: false, tensorboard: false } };
      const handle = await trained(bench, name, told);
      const atLast = cpuOf(bench);
      if (follower === null || pidOf(bench, 'follower') !== follower)
        throw new Error(`the follower ended while ${name} was followed: its log says why`);
      if (atFirst) shares.push((atLast.follower - atFirst.follower) / (atLast.others - atFirst.others));
      steps[how].push(...(await stepMs(bench.store, name, plan.steps)));
      for (const kind of await kindsIn(client, handle)) kinds[how].add(kind);
      const share = hang
        ? `, the follower ${((shares.at(-1) ?? NaN) * 100).toFixed(2)} % of its CPU time`
        : '';
      say(`${name}: a step takes ${median(steps[how]).toFixed(1)} ms${share}`);
    }
  return {
    hanging_step_ms: median(steps.hanging),
    quiet_step_ms: median(steps.quiet),
    awaited_by_steps: [...kinds.hanging].filter((kind) => !kinds.quiet.has(kind)).length,
    cpu_share: median(shares),
    first_cpu_share: shares[0] ?? NaN,
  };
}

function filesOf(bench: Bench, run: string): string[] {
  const folders = [join(trackingOf(bench), run), join(trackingOf(bench), 'tensorboard', run)];
  for (const folder of folders) mkdirSync(folder, { recursive: true });
  return [join(folders[0] ?? '', 'metrics.jsonl'), join(folders[1] ?? '', eventFileName)];
}

async function throughKills(bench: Bench) {
  const { slack, plan, say, store } = bench;
  slack.fault = () => null;
  const run = 'killed';
  const thread = () =>
    slack.training.messages.flatMap(({ metadata }) =>
      metadata?.event_payload['run'] === run ? [String(metadata.event_payload['id'])] : [],
    );
  const { tracking, ...others } = everyone;
  const { wandb: _wandb, ...files } = tracking ?? { metrics_jsonl: true, tensorboard: true };
  const running = trained(bench, run, { ...others, tracking: files });
  const deadline = Date.now() + plan.deadlineMs;
  let met = 0;
  for (let kill = 1; kill <= plan.kills; kill++) {
    const [had, begun] = [thread().length, Date.now()];
    // At a moment of its work: after a message of its own, or after a while where it has no more to tell.
    while (thread().length === had && Date.now() - begun < 15_000) await delay(5);
    await delay(Math.random() * 1_500);
    const pid = pidOf(bench, 'follower');
    const hasToTell = !thread().some((id) => id.startsWith('ended.'));
    if (pid !== null) process.kill(pid, 'SIGKILL');
    met += Number(pid !== null && hasToTell);
    say(`kill ${kill} of ${plan.kills} with ${thread().length} messages told`);
  }
  await running;
  while (!thread().some((id) => id.startsWith('ended.'))) {
    if (Date.now() > deadline) throw new Error(`the end of ${run} is not told: ${thread().join(' ')}`);
    await delay(200);
  }
  const points = await expectedPoints(store, run);
  const ids = async (): Promise<string[][]> => [
    readFileSync(join(trackingOf(bench), run, 'metrics.jsonl'), 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { id: string }).id),
    await eventIds(readFileSync(join(trackingOf(bench), 'tensorboard', run, eventFileName))),
  ];
  while ((await ids()).some((one) => one.length < points.size) && Date.now() < deadline) await delay(500);
  const found = await ids();
  const expected = await expectedEvents(bench, run);
  const told = thread();
  const missing = expected.filter((id) => !told.includes(id));
  const doubled = told.filter((id, index) => told.indexOf(id) !== index);
  if (missing.length + doubled.length > 0)
    say(`missing: ${missing.join(' ')}; doubled: ${doubled.join(' ')}; told: ${told.join(' ')}`);
  return {
    kills: met,
    slack_expected: expected.length,
    slack_doubled: doubled.length,
    slack_missing: missing.length,
    points_expected: points.size * found.length,
    points_doubled: found.reduce((sum, one) => sum + one.length - new Set(one).size, 0),
    points_missing: found.reduce(
      (sum, one) => sum + [...points.keys()].filter((id) => !one.includes(id)).length,
      0,
    ),
  };
}

/** As one reader finds them whom nobody kills. */
async function expectedEvents({ store, client }: Bench, run: string): Promise<string[]> {
  const [owner] = await readSequence(store, ownersFolder(run), 'owner');
  const firstRunId = owner?.firstExecutionRunId ?? '';
  const { runId } = await client.workflow.getHandle(`train/${run}`).describe();
  const at = new Date().toISOString();
  const ending: RunEnding = { firstRunId, runId, how: 'completed', at, reason: null };
  const context = { links: [], modality: null, now: ending.at, ending, chart: () => Promise.resolve(null) };
  const ids: string[] = [];
  for (let cursor = newEventCursor; ;) {
    const page = await readRunEvents(store, run, cursor, context);
    ids.push(...page.events.map(({ id }) => markId(id)));
    cursor = page.cursor;
    if (!page.more) return ids;
  }
}

async function trained(bench: Bench, name: string, told: Pick<RunSpec, 'tracking' | 'slack'>) {
  const { folder, client, plan } = bench;
  const spec = await steadyRun(join(folder, name), { name, steps: plan.steps });
  const { handle } = await startTraining(client, {
    ...spec,
    ...told,
    trainer: { ...spec.trainer, ckpt_interval: 5 },
  });
  const late = new Promise<never>((_, reject) => {
    const error = new Error(`${name} has not ended in ${plan.deadlineMs / 1_000} s`);
    setTimeout(reject, plan.deadlineMs, error).unref();
  });
  await Promise.race([handle.result(), late]);
  return handle;
}

async function stepMs(store: ObjectStore, run: string, last: number): Promise<number[]> {
  const at = async (step: number): Promise<number> =>
    Date.parse((await readUpdate(store, run, step)).observed.committed_at);
  const times: number[] = [];
  for (let step = firstCountedStep; step <= last; step++) times.push(await at(step));
  return times.slice(1).map((time, index) => time - (times[index] ?? time));
}

/** CPU time in milliseconds. */
function cpuOf(bench: Bench): { follower: number; others: number } {
  const node = pidOf(bench, 'node');
  const makers = ['orchestrator', 'temporal', 'environments'].map((name) => pidOf(bench, name));
  const others = [...makers, node, childOf(node, 'longhaul-engine')];
  const sum = (pids: readonly (number | null)[]): number =>
    pids.reduce<number>((all, pid) => all + cpuMs(pid), 0);
  return { follower: sum([pidOf(bench, 'follower')]), others: sum(others) };
}

async function kindsIn(client: Client, { workflowId }: { workflowId: string }): Promise<Set<string>> {
  const { events } = await client.workflow.getHandle(workflowId).fetchHistory();
  return new Set(
    (events ?? []).map(
      ({
        eventType,
        activityTaskScheduledEventAttributes: activity,
        workflowExecutionSignaledEventAttributes: signal,
      }) => [eventType, activity?.activityType?.name, signal?.signalName].filter(Boolean).join(' '),
    ),
  );
}
