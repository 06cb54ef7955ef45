// The manifests of infra/kubernetes, as the workers read them. schemas.nightly.test.ts checks them against Kubernetes' schemas.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { readWorkerConfig } from '../../src/workers/process/config.js';
import { repository } from '../support/repository.js';
import {
  knownVariables,
  type Manifest,
  read,
  readCompose,
  filledIn,
  readManifests,
  sourceOf,
} from './stack-files.js';

interface Container {
  name: string;
  image: string;
  command: string[];
  env: { name: string; value?: string; valueFrom?: object }[];
  ports?: { name: string; containerPort: number }[];
  securityContext: Record<string, unknown>;
  startupProbe?: { exec: { command: string[] } };
}
interface Pods {
  replicas: number;
  selector: { matchLabels: Record<string, string> };
  template: {
    metadata: { labels: Record<string, string> };
    spec: {
      containers: [Container];
      terminationGracePeriodSeconds?: number;
      automountServiceAccountToken: boolean;
      securityContext: Record<string, unknown>;
    };
  };
}

const manifests = readManifests().map(({ manifest }) => manifest);
const named = (kind: string, name: string): Manifest => {
  const one = manifests.find((each) => each.kind === kind && each.metadata.name === name);
  if (!one) throw new Error(`there is no ${kind} ${name}`);
  return one;
};
const pods = (kind: string, name: string): Pods => named(kind, name).spec as unknown as Pods;
const workloads = [
  ['environments', pods('Deployment', 'environments')],
  ['orchestrator', pods('Deployment', 'orchestrator')],
  ['follower', pods('Deployment', 'follower')],
  ['gpu-node', pods('StatefulSet', 'gpu-node')],
] as const;

describe.each(workloads)('%s', (_name, { selector, template }) => {
  const [container] = template.spec.containers;

  test('selects its own pods', () => {
    expect(template.metadata.labels).toMatchObject(selector.matchLabels);
  });

  test('starts an existing process, with variables that the process reads', () => {
    const script = container.command.find((word) => word.startsWith('dist/'));
    if (script) expect(sourceOf(script)).toBeDefined();
    const known = new Set([
      ...knownVariables(),
      ...['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'TEMPORAL_API_KEY'],
    ]);
    for (const { name } of container.env) expect(known).toContain(name);
  });

  test('gets secrets only by reference, and has no right that it does not need', () => {
    for (const { name, value } of container.env)
      if (/TOKEN$|KEY|SECRET|PASSWORD/.test(name)) expect(value, name).toBeUndefined();
    expect(template.spec.automountServiceAccountToken).toBe(false);
    expect(template.spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 10001 });
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
  });
});

test('each workload has the command that it has in the compose file', () => {
  const { services } = readCompose(filledIn());
  const commands = Object.fromEntries(
    workloads.map(([name, { template }]) => [name, template.spec.containers[0].command]),
  );
  expect(commands['environments']).toEqual(services['environments']?.command);
  expect(commands['orchestrator']).toEqual(services['orchestrator']?.command);
  expect(commands['follower']).toEqual(services['follower']?.command);
  expect(commands['gpu-node']).toEqual(services['node-gpu']?.command);
  const probe = pods('StatefulSet', 'gpu-node').template.spec.containers[0].startupProbe?.exec.command;
  expect(['CMD', ...(probe ?? [])]).toEqual(services['node-gpu']?.healthcheck?.test);
});

test('a node accepts its variables, and gets at least its grace period for leaving', () => {
  const { template } = pods('StatefulSet', 'gpu-node');
  const given = Object.fromEntries(
    template.spec.containers[0].env.flatMap(({ name, value }) =>
      value === undefined ? [] : [[name, value]],
    ),
  );
  const shared = Object.fromEntries(
    read('infra/kubernetes/config.env')
      .trim()
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
  const variables = {
    ...shared,
    ...given,
    LONGHAUL_NODE: 'gpu-node-0',
    LONGHAUL_FOLDER: '/var/lib/longhaul',
  };
  const { graceMs } = readWorkerConfig([], variables);
  expect((template.spec.terminationGracePeriodSeconds ?? 30) * 1000).toBeGreaterThanOrEqual(graceMs + 10_000);
});

test('the environment server, which has no log-in, accepts only workers and connects to nothing', () => {
  expect(named('NetworkPolicy', 'nobody-comes-in').spec).toEqual({
    podSelector: {},
    policyTypes: ['Ingress'],
  });
  const { spec } = named('NetworkPolicy', 'environments');
  expect(spec).toMatchObject({ policyTypes: ['Ingress', 'Egress'] });
  expect(spec).not.toHaveProperty('egress');
});

test('a drain takes only one node at a time, and never the last orchestrator', () => {
  expect(named('PodDisruptionBudget', 'gpu-node').spec).toMatchObject({ maxUnavailable: 1 });
  expect(named('PodDisruptionBudget', 'orchestrator').spec).toMatchObject({ minAvailable: 1 });
  expect(pods('Deployment', 'orchestrator').replicas).toBeGreaterThan(1);
});

test('only one follower runs at a time, on a volume that outlives it', () => {
  const { replicas, template } = pods('Deployment', 'follower');
  expect(replicas).toBe(1);
  expect(named('Deployment', 'follower').spec?.['strategy']).toEqual({ type: 'Recreate' });
  expect(JSON.stringify(template.spec)).toContain('"persistentVolumeClaim":{"claimName":"follower"}');
  expect(named('PersistentVolumeClaim', 'follower').spec).toMatchObject({ accessModes: ['ReadWriteOnce'] });
});

test('kustomize builds all manifests', ({ skip }) => {
  const { status, stdout, stderr, error } = spawnSync(
    'kubectl',
    ['kustomize', join(repository, 'infra/kubernetes')],
    {
      encoding: 'utf8',
    },
  );
  if (error) return skip('there is no kubectl on this machine');
  expect(stderr).toBe('');
  expect(status).toBe(0);
  const made = parseAllDocuments(stdout).map((document) => document.toJS() as Manifest);
  const { images } = parse(read('infra/kubernetes/kustomization.yaml')) as {
    images: [{ newName: string; newTag: string }];
  };
  expect(stdout).toContain(`image: ${images[0].newName}:${images[0].newTag}`);
  expect(made.map(({ kind }) => kind).sort()).toEqual(
    [...manifests.map(({ kind }) => kind), 'ConfigMap'].sort(),
  );
});
