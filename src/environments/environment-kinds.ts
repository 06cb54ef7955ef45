// How a node plays on an environment, by the kind that its spec names.
import type { EnvironmentSpec } from '../spec/run-spec.js';
import type { EnvironmentKind } from './environment-kind.js';
import { fleetKind } from './fleet/fleet-kind.js';
import { openEnvKind } from './openenv/openenv-kind.js';

const kinds: Record<NonNullable<EnvironmentSpec['kind']>, EnvironmentKind> = {
  openenv: openEnvKind,
  fleet: fleetKind,
};

export function environmentKind({ kind = 'openenv' }: EnvironmentSpec): EnvironmentKind {
  return kinds[kind];
}
