// Asks the servers of a step for their identity while its update is computed, so that a server that changes during the run is noticed at the
// step (R25). The answers are only recorded: no server can delay a step or make it fail.
import type { NodeDeps } from '../node-deps.js';
import { awakeLimit } from '../../base/awake-clock.js';
import { sha256Hex } from '../../base/sha256.js';
import type { RunData } from '../../data/run-data.js';
import { environmentKind } from '../../environments/environment-kinds.js';
import type { EnvironmentFacts } from '../../environments/environment-kind.js';
import { environmentChanges } from '../../rl/environment-changes.js';
import { environmentOf, isOfStack } from '../../spec/environments/environment-schema.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { ServerIdentity, UpdateRecord } from '../../spec/records/update.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import { canonicalBytes } from '../../store/records/canonical.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { environmentsNow } from '../../store/runs/owners.js';
import { readUpdateIfAny } from '../../store/runs/run-records.js';

/** Limit for all servers together. */
const limitMs = 10_000;

export type StepEnvironments = Record<string, ServerIdentity>;

/** By `env_key`, without the servers that did not answer; empty for a step that plays nothing. Never rejects. */
export async function askStepEnvironments(
  store: ObjectStore,
  plan: PlanRecord,
  data: RunData,
  signal: AbortSignal,
): Promise<StepEnvironments> {
  if (plan.kind !== 'grpo' || plan.rebased) return {};
  const limit = awakeLimit(limitMs);
  try {
    const environments = await environmentsNow(store, data.record);
    const names = [...new Set(plan.slots.map(({ env_key }) => env_key))].sort();
    const asked = await Promise.all(
      names.map(async (name) => {
        const environment = environmentOf(environments, name);
        if (environment === undefined || isOfStack(environment)) return [];
        const either = AbortSignal.any([signal, limit.signal]);
        const identity = await identityOf(data, name, environment, either).catch(() => null);
        return identity === null ? [] : [[name, identity] as const];
      }),
    );
    return Object.fromEntries(asked.flat());
  } catch {
    return {};
  } finally {
    limit.callOff();
  }
}

async function identityOf(
  { tasks }: RunData,
  name: string,
  environment: EnvironmentSpec,
  signal: AbortSignal,
): Promise<ServerIdentity> {
  // The same task each time, because some servers have other tools for another task.
  const first = tasks.filter(({ env_key, split }) => env_key === name && split === 'train').slice(0, 1);
  const asking = { timeoutMs: limitMs, signal, fullIsEnough: true };
  return recorded(await environmentKind(environment).facts(environment, first, asking));
}

function recorded({ name, version, tools, reward_rule }: EnvironmentFacts): ServerIdentity {
  return {
    ...(name === null ? {} : { name }),
    ...(version === null ? {} : { version }),
    ...(tools === null ? {} : { tools: sha256Hex(canonicalBytes(tools)) }),
    ...(reward_rule === null ? {} : { reward_rule }),
  };
}

/** If a server has changed since the step before, logs it, and makes the next episodes ask for its tools again. */
export async function noticeChanges(
  deps: NodeDeps,
  { record }: RunData,
  update: UpdateRecord,
): Promise<void> {
  const { run, step } = update.identity;
  if (update.observed.environments === undefined) return;
  const before = await readUpdateIfAny(deps.store, run, step - 1);
  const found = environmentChanges(before?.observed.environments ?? {}, update);
  if (found.length === 0) return;
  const environments = await environmentsNow(deps.store, record);
  for (const { environment: name, changes } of found) {
    deps.log(`${run}: the environment ${name} changed at step ${step}: ${changes.join(', ')}`);
    const environment = environmentOf(environments, name);
    if (environment)
      deps.backendFor(environment, record.spec.generator.call_timeout_s * 1000).forgetTools?.(name);
  }
}
