// The parts that are placed between the processes of a run to cause faults: proxies before the environment server and the bucket, wrappers
// around the engine and the Temporal server, and the preloaded library.
import { randomBytes } from 'node:crypto';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type FaultProxy, startFaultProxy } from '../support/servers/fault-proxy.js';
import { findEngine } from '../support/find-tools.js';
import { buildLibcShim, type LibcShim } from '../support/preloads/libc-shim.js';
import { builtScripts, repository } from '../support/repository.js';
import { startS3Server } from '../support/servers/s3-server.js';
import { startTcpProxy, type TcpProxy } from '../support/servers/tcp-proxy.js';
import { findTemporalBinary } from '../../src/stack/temporal-binary.js';
import type { World } from './faults/fault.js';
import type { Surroundings } from './trial.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { servedAt } from '../../src/cli/train/example-server.js';
import type { StackScripts } from '../../src/stack/process-plans.js';

export type StoreKind = 'directory' | 's3';
export type FaultyParts = Omit<World, 'trial' | 'random'>;

export interface FaultySurroundings extends Surroundings {
  parts: FaultyParts;
}

const tokenVariable = 'LONGHAUL_CHAOS_GRADING_TOKEN';

/**
 * `noShim`: why no library can be preloaded on this machine, or null. `scripts`: entry scripts of the stack; default: those beside this
 * file's compiled form.
 */
export async function faultySurroundings(
  folder: string,
  spec: RunSpec,
  {
    store,
    nodes,
    noShim,
    scripts,
  }: { store: StoreKind; nodes: number; noShim: string | null; scripts: StackScripts | undefined },
): Promise<FaultySurroundings> {
  const undo: (() => Promise<void> | void)[] = [];
  const gradingToken = randomBytes(24).toString('base64');
  const stop = async (): Promise<void> => {
    for (const one of undo.splice(0).reverse()) await one();
  };
  try {
    const environments = await startTcpProxy();
    undo.push(() => environments.stop());
    const bucket = store === 's3' ? await startBucket(undo) : null;
    const shim = noShim === null ? await startShim(folder, undo) : null;
    const away = join(folder, 'temporal-away');
    const cut = join(folder, 'engine-cut');
    const temporal = wrapper(join(folder, 'temporal'), [
      `while [ -e '${away}' ]; do sleep 0.05; done`,
      `exec '${findTemporalBinary()}' "$@"`,
    ]);
    const cutter = join(repository, 'test/support/preloads/engine-cutter.mjs');
    const engine = wrapper(join(folder, 'engine'), [
      `if [ -e '${cut}' ]; then`,
      `  replies=$(cat '${cut}'); rm '${cut}'`,
      `  exec '${process.execPath}' '${cutter}' "$replies" '${findEngine()}' "$@"`,
      'fi',
      `exec '${findEngine()}' "$@"`,
    ]);
    // The stack uses a grading token that exists already, and its child processes inherit the variable set here.
    writeFileSync(join(folder, 'grading-token'), `${gradingToken}\n`, { mode: 0o600 });
    const ownScript = (name: string): string => fileURLToPath(new URL(`../../src/${name}`, import.meta.url));
    const node = scripts?.node ?? ownScript('workers/node-main.js');
    setVariables(
      {
        ...shim?.environment,
        ...{ LONGHAUL_TEMPORAL: temporal, LONGHAUL_CHAOS_NODE_SCRIPT: node },
        [tokenVariable]: gradingToken,
      },
      undo,
    );
    return {
      spec: throughProxy(spec, environments),
      engine,
      nodes,
      scripts: {
        orchestrator: ownScript('workers/orchestrator-main.js'),
        environments: builtScripts.environments,
        follower: ownScript('workers/follower-main.js'),
        ...scripts,
        node: join(repository, 'test/support/preloads/node-gate.mjs'),
      },
      ...(bucket ? { store: { address: bucket.address, direct: bucket.direct } } : {}),
      secrets: {
        texts: [gradingToken, ...(bucket ? [process.env['AWS_SECRET_ACCESS_KEY'] ?? ''] : [])],
        givenIn: ['grading-token'],
      },
      opened: ({ addresses }) => {
        environments.target = new URL(addresses.environments!).host;
      },
      stop,
      parts: {
        environments,
        s3: bucket?.proxy ?? null,
        shim,
        temporal: {
          databaseFile: join(folder, 'temporal.db'),
          get away() {
            return existsSync(away);
          },
          set away(gone) {
            if (gone) writeFileSync(away, '');
            else rmSync(away, { force: true });
          },
        },
        cutEngine: (replies) => writeFileSync(cut, String(replies)),
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

function throughProxy(spec: RunSpec, { url }: TcpProxy): RunSpec {
  const served = servedAt(spec, url);
  const environments = served.environments.map((one) => ({ ...one, grading_token_env: tokenVariable }));
  return { ...served, environments };
}

type Undos = (() => Promise<void> | void)[];

async function startBucket(undo: Undos): Promise<{ address: string; direct: string; proxy: FaultProxy }> {
  const server = await startS3Server();
  undo.push(() => server.stop());
  const proxy = await startFaultProxy(server.endpoint);
  undo.push(() => proxy.stop());
  return { address: server.address('chaos', proxy.endpoint), direct: server.address('chaos'), proxy };
}

async function startShim(folder: string, undo: Undos): Promise<LibcShim> {
  const shim = await buildLibcShim(folder, { node: join(folder, 'node'), store: join(folder, 'store') });
  undo.push(() => shim.close());
  return shim;
}

function wrapper(path: string, lines: readonly string[]): string {
  writeFileSync(path, `${['#!/bin/sh', ...lines].join('\n')}\n`, { mode: 0o755 });
  return path;
}

function setVariables(variables: Record<string, string>, undo: Undos): void {
  for (const [name, value] of Object.entries(variables)) {
    const before = process.env[name];
    process.env[name] = value;
    undo.push(() => {
      if (before === undefined) delete process.env[name];
      else process.env[name] = before;
    });
  }
}
