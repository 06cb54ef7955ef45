// Bundles the workflow code for workers. A cache keeps one bundle for each content of `dist/workflows`.
import { createHash, randomUUID } from 'node:crypto';
import { access, mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { dirname, extname, join } from 'node:path';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';

/** Modules outside the workflows' folder from which workflows import values (not only types); paths are relative to that folder. */
export const importedValues = [
  '../spec/records/numerics',
  '../spec/budget',
  '../spec/pass-rate',
  '../spec/suite-due',
  '../spec/records/live-ranges',
] as const;

/** Modules of the folder that only some workers include in their bundle. */
export type BundledInterceptor = 'step-tracing';

/** Path of the bundle. `workflowsFolder` holds `index.js` (or `index.ts` in tests). */
export async function cachedWorkflowBundle(
  workflowsFolder: string,
  cacheFolder = defaultCacheFolder(),
  interceptors: readonly BundledInterceptor[] = [],
): Promise<string> {
  const names = (await readdir(workflowsFolder, { recursive: true })).filter(
    (name) => /\.(js|ts)$/.test(name) && !name.endsWith('.d.ts'),
  );
  const index = names.includes('index.js') ? 'index.js' : 'index.ts';
  const files = [...names.sort(), ...importedValues.map((module) => module + extname(index))];
  const kind = ['workflows', ...interceptors].join('-');
  const path = join(cacheFolder, `${kind}-${await contentHash(workflowsFolder, files)}.js`);
  if (await exists(path)) return path;
  const { code } = await bundleWorkflowCode({
    workflowsPath: join(workflowsFolder, index),
    workflowInterceptorModules: interceptors.map((name) => join(workflowsFolder, name + extname(index))),
    logger: new DefaultLogger('WARN'),
  });
  await mkdir(dirname(path), { recursive: true });
  const draft = `${path}.${randomUUID()}`;
  await writeFile(draft, code);
  await rename(draft, path);
  return path;
}

function defaultCacheFolder(): string {
  return join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'longhaul', 'bundles');
}

/** Hash of the workflow files and the SDK's version: only the SDK version that made a bundle may load it. */
async function contentHash(folder: string, names: string[]): Promise<string> {
  const sdk = createRequire(import.meta.url)('@temporalio/worker/package.json') as { version: string };
  const hash = createHash('sha256').update(sdk.version);
  for (const name of names) {
    hash.update(`\n${name}\n`).update(await readFile(join(folder, name)));
  }
  return hash.digest('hex').slice(0, 24);
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
