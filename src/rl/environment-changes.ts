// Changes of an environment's server between steps. Rewards after a change are those of another environment (R25).
import type { ServerIdentity, UpdateRecord } from '../spec/records/update.js';

/** The newest known facts by environment. */
export type KnownServers = Readonly<Record<string, ServerIdentity>>;

interface EnvironmentChange {
  environment: string;
  /** For example `version 1 → 2`, `other tools`. */
  changes: string[];
}

/** What differs between `known` and the servers of a step. A fact that either of them lacks is not compared. */
export function environmentChanges(known: KnownServers, { observed }: UpdateRecord): EnvironmentChange[] {
  return Object.entries(observed.environments ?? {}).flatMap(([environment, now]) => {
    const changes = differencesOf(known[environment], now);
    return changes.length === 0 ? [] : [{ environment, changes }];
  });
}

function differencesOf(before: ServerIdentity | undefined, now: ServerIdentity): string[] {
  const differs = (fact: keyof ServerIdentity): boolean =>
    before?.[fact] !== undefined && now[fact] !== undefined && before[fact] !== now[fact];
  return [
    ...(differs('name') ? [`name ${before?.name} → ${now.name}`] : []),
    ...(differs('version') ? [`version ${before?.version} → ${now.version}`] : []),
    ...(differs('tools') ? ['other tools'] : []),
    ...(differs('reward_rule') ? ['another reward rule'] : []),
  ];
}

/** `known` with what a step learned. */
export function plusServers(known: KnownServers, { observed }: UpdateRecord): KnownServers {
  const next = { ...known };
  for (const [environment, now] of Object.entries(observed.environments ?? {}))
    next[environment] = { ...next[environment], ...now };
  return next;
}

/** The steps at which an environment changed. `updates` must be in order. */
export function stepsOfChanges(updates: readonly UpdateRecord[]): number[] {
  let known: KnownServers = {};
  const steps: number[] = [];
  for (const update of updates) {
    if (environmentChanges(known, update).length > 0) steps.push(update.identity.step);
    known = plusServers(known, update);
  }
  return steps;
}
