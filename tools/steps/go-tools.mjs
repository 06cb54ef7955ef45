// Provides the servers that Longhaul starts itself: Temporal (always), versitygw (the S3 server of the tests), and, only when asked for,
// the Temporal server that containers run.
// A server is taken from PATH, else from the cache; else it is downloaded or built once.
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
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
import { isReachable } from './downloads.mjs';
import { requireGo } from './prerequisites.mjs';

const downloadHost = 'temporal.download';

/** Version of the Temporal CLI that is fetched or built, as its Go module pins it. */
function pinnedTemporalVersion() {
  const module = readFileSync(join(repository, 'tools/temporal-cli/go.mod'), 'utf8');
  return /temporalio\/cli (v\S+)/.exec(module)?.[1] ?? 'default';
}

const temporal = {
  name: 'temporal',
  module: join(repository, 'tools/temporal-cli'),
  package: 'github.com/temporalio/cli/cmd/temporal',
  purpose: `Temporal's server is built from its Go module if it cannot be downloaded from ${downloadHost}.`,
  home: 'https://docs.temporal.io/cli',
  note: 'about 5 minutes on 2 cores, once',
  downloadHost,
  download: downloadTemporal,
};

const versitygw = {
  name: 'versitygw',
  module: join(repository, 'tools/versitygw'),
  package: 'github.com/versity/versitygw/cmd/versitygw',
  purpose: 'the S3 server of the tests is built from its Go module.',
  home: 'https://github.com/versity/versitygw',
  note: 'about 90 s on 2 cores, once',
};

/** The same version as the server inside `temporal server start-dev`, but this one accepts an external database. */
const temporalServer = {
  name: 'temporal-server',
  module: join(repository, 'tools/temporal-server'),
  package: 'go.temporal.io/server/cmd/server',
  companions: [{ name: 'temporal-sql-tool', package: 'go.temporal.io/server/cmd/tools/sql' }],
  purpose: 'the Temporal server of the test of the whole stack is built from its Go module.',
  home: 'https://github.com/temporalio/temporal',
  note: 'about 10 minutes on 2 cores, once; 1 minute if the embedded server was built here before',
};

export function ensureTemporal() {
  return ensureTool(temporal);
}

export function ensureS3Server() {
  return ensureTool(versitygw);
}

export function ensureTemporalServer() {
  return ensureTool(temporalServer);
}

/** Fails now if a tool could not be built minutes later. */
export async function checkGo({ withTests = false } = {}) {
  for (const tool of withTests ? [temporal, versitygw] : [temporal]) {
    if (givenTool(tool) !== null || existsSync(cachedTool(tool).binary)) continue;
    if (tool.downloadHost !== undefined && (await isReachable(tool.downloadHost))) continue;
    requireGo(tool);
  }
}

/** A tool that the user provides: first by the variable that the product reads, then on PATH. */
function givenTool({ name }) {
  return process.env[`LONGHAUL_${name.toUpperCase().replaceAll('-', '_')}`] || findOnPath(name);
}

function cachedTool({ name, module }) {
  const sources = ['go.mod', 'go.sum', 'cliext'].map((name) => join(module, name));
  const key = contentKey(sources, [platformKey]);
  const folder = join(cacheRoot, name, key);
  return { key, folder, binary: join(folder, name) };
}

async function ensureTool(tool) {
  const given = givenTool(tool);
  if (given !== null) {
    recordToolPath(tool.name, given);
    return `found: ${given}`;
  }
  const { key, folder, binary } = cachedTool(tool);
  const done = (how) => {
    recordToolPath(tool.name, binary);
    return how;
  };
  if (existsSync(binary)) return done('current');
  return withLock(`${tool.name}-${key}`, async () => {
    if (existsSync(binary)) return done('current');
    mkdirSync(folder, { recursive: true });
    if (tool.download !== undefined && (await tool.download(folder, binary))) return done('downloaded');
    // Build the tool's own program last: if its file exists, its companions exist, too.
    for (const { name, package: one } of tool.companions ?? [])
      await buildTool(tool, one, join(folder, name));
    await buildTool(tool, tool.package, binary);
    return done('built');
  });
}

async function buildTool(tool, package_, binary) {
  const { path: go, environment } = requireGo(tool);
  const name = basename(binary);
  console.log(`    building ${name} with Go (${tool.note})`);
  const options = {
    cwd: tool.module,
    env: { ...environment, CGO_ENABLED: '0' },
    hint: `Or put a \`${tool.name}\` on the PATH yourself, and start again.`,
  };
  // A separate command before the build: the build prints nothing while it downloads, and does not know the number of packages.
  let packages = 0;
  await runLong(go, ['list', '-deps', package_], {
    ...options,
    label: `${name} modules`,
    describe(line) {
      if (isPackage(line)) packages += 1;
      return line;
    },
  });
  let compiled = 0;
  const temporary = `${binary}.${process.pid}`;
  await runLong(go, ['build', '-v', '-ldflags', '-s -w', '-o', temporary, package_], {
    ...options,
    label: `${name} build`,
    describe(line) {
      if (!isPackage(line)) return line;
      compiled += 1;
      return `package ${compiled} of ${packages}: ${line}`;
    },
  });
  renameSync(temporary, binary);
}

/** Whether a line of Go's output is a package. Notices and errors contain spaces. */
function isPackage(line) {
  return !line.includes(' ');
}

/** Uses the SDK's own download. Returns false if that fails, and the caller builds instead. */
async function downloadTemporal(folder, binary) {
  if (!(await isReachable(downloadHost))) {
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
      silenceMs: 180_000,
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
