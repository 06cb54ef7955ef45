// Servers that Longhaul starts itself: Temporal (always) and versitygw, the S3 server of the tests.
// Each is taken from PATH, else from the cache, else fetched or built once.
import { lookup } from 'node:dns/promises';
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  cacheRoot,
  contentKey,
  filesBelow,
  platformKey,
  recordToolPath,
  repository,
  withLock,
} from './cache.mjs';
import { findOnPath, runLong } from './command.mjs';
import { requireGo } from './prerequisites.mjs';

const downloadHost = 'temporal.download';

/** Version of the Temporal CLI that is fetched or built, as its Go module pins it. */
function pinnedTemporalVersion() {
  const module = readFileSync(join(repository, 'tools/temporal-cli/go.mod'), 'utf8');
  return /temporalio\/cli (v\S+)/.exec(module)?.[1] ?? 'default';
}

export function ensureTemporal() {
  return ensureTool({
    name: 'temporal',
    module: 'tools/temporal-cli',
    package: 'github.com/temporalio/cli/cmd/temporal',
    purpose: "Temporal's server is built from its Go module where it cannot be downloaded.",
    note: 'about 5 minutes on 2 cores, once',
    download: downloadTemporal,
  });
}

export function ensureS3Server() {
  return ensureTool({
    name: 'versitygw',
    module: 'tools/versitygw',
    package: 'github.com/versity/versitygw/cmd/versitygw',
    purpose: 'the S3 server of the tests is built from its Go module.',
    note: 'about 90 s on 2 cores, once',
  });
}

async function ensureTool(tool) {
  const onPath = findOnPath(tool.name);
  if (onPath !== null) {
    recordToolPath(tool.name, onPath);
    return `found on PATH: ${onPath}`;
  }
  const module = join(repository, tool.module);
  const key = contentKey([join(module, 'go.mod'), join(module, 'go.sum')], [platformKey]);
  const folder = join(cacheRoot, tool.name, key);
  const binary = join(folder, tool.name);
  const done = (how) => {
    recordToolPath(tool.name, binary);
    return how;
  };
  if (existsSync(binary)) return done('current');
  return withLock(`${tool.name}-${key}`, async () => {
    if (existsSync(binary)) return done('current');
    mkdirSync(folder, { recursive: true });
    if (tool.download !== undefined && (await tool.download(folder, binary))) return done('downloaded');
    const go = requireGo(tool.purpose);
    console.log(`    building ${tool.name} from ${tool.module} (${tool.note})`);
    const temporary = `${binary}.${process.pid}`;
    await runLong(go, ['build', '-ldflags', '-s -w', '-o', temporary, tool.package], {
      label: `${tool.name} build`,
      cwd: module,
      env: { ...process.env, CGO_ENABLED: '0' },
      hint: `Or put a \`${tool.name}\` on PATH yourself, and start again.`,
    });
    renameSync(temporary, binary);
    return done('built');
  });
}

/** The SDK's own download. False where its host cannot be reached, so that the caller builds instead. */
async function downloadTemporal(folder, binary) {
  if (!(await reachable(downloadHost))) {
    console.log(`    ${downloadHost} cannot be reached`);
    return false;
  }
  const downloads = join(folder, `download-${process.pid}`);
  mkdirSync(downloads, { recursive: true });
  const script = `
    import { TestWorkflowEnvironment } from '@temporalio/testing';
    const executable = { type: 'cached-download', downloadDir: ${JSON.stringify(downloads)}, version: ${JSON.stringify(pinnedTemporalVersion())} };
    const environment = await TestWorkflowEnvironment.createLocal({ server: { executable } });
    await environment.teardown();`;
  try {
    await runLong(process.execPath, ['--input-type=module', '-e', script], {
      label: 'temporal download',
      timeoutMs: 180_000,
    });
    const fetched = filesBelow(downloads)[0];
    if (fetched === undefined) return false;
    chmodSync(fetched, 0o755);
    renameSync(fetched, binary);
    return true;
  } catch (error) {
    console.log(`    the download failed, so it is built instead: ${error.message.split('\n')[0]}`);
    return false;
  } finally {
    rmSync(downloads, { recursive: true, force: true });
  }
}

/** A proxy answers for the host where one is configured; otherwise name and port must answer within 10 s. */
async function reachable(host) {
  if (process.env.HTTPS_PROXY || process.env.https_proxy) return true;
  const attempt = lookup(host)
    .then(
      ({ address }) =>
        new Promise((resolve) => {
          const socket = connect({ host: address, port: 443, timeout: 8_000 });
          const settle = (answer) => {
            socket.destroy();
            resolve(answer);
          };
          socket
            .once('connect', () => settle(true))
            .once('timeout', () => settle(false))
            .once('error', () => settle(false));
        }),
    )
    .catch(() => false);
  return Promise.race([attempt, sleep(10_000, false, { ref: false })]);
}
