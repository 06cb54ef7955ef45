// Compiles dist/, but only if a source, a setting or the compiler changed.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { copyAssets } from '../copy-assets.mjs';
import { contentKey, filesBelow, repository, withLock } from './cache.mjs';
import { runLong } from './command.mjs';
import { ensureDemonstrations } from './demonstrations.mjs';

const targets = {
  product: {
    config: ['tsconfig.build.json', 'tsconfig.examples.json'],
    output: 'dist',
    sources: ['src', 'examples/apps'],
    root: 'src',
  },
  development: {
    config: ['tsconfig.dev.json'],
    output: 'dist/dev',
    sources: ['src', 'examples/apps', 'bench', 'test/chaos', 'test/support'],
    root: '.',
  },
};

/** @param {'product' | 'development'} name `development`: benchmarks and chaos harness, with everything that they import */
export async function ensureTypescript(name) {
  const target = targets[name];
  const stamp = join(repository, target.output, '.sources');
  const settings = ['tsconfig.json', ...target.config, 'package-lock.json'].map((file) =>
    join(repository, file),
  );
  const current = () =>
    contentKey([...target.sources.map((folder) => join(repository, folder)), ...settings]);
  const isCurrent = () => existsSync(stamp) && readFileSync(stamp, 'utf8') === current();
  if (isCurrent()) return 'current';
  return withLock(`typescript-${Buffer.from(repository).toString('base64url').slice(-40)}`, async () => {
    if (isCurrent()) return 'current';
    const key = current();
    const compiler = join(repository, 'node_modules/typescript/bin/tsc');
    for (const config of target.config)
      await runLong(process.execPath, [compiler, '-p', config], { label: `typescript ${name}` });
    copyAssets(target.root, target.output);
    removeStale(target);
    if (name === 'product') await ensureDemonstrations();
    mkdirSync(dirname(stamp), { recursive: true });
    writeFileSync(stamp, key);
    return 'built';
  });
}

/** Removes compiled files whose source no longer exists: they could still be imported by mistake. */
function removeStale(target) {
  const output = join(repository, target.output);
  const nested = join(repository, 'dist/dev');
  for (const file of filesBelow(output)) {
    if (target.output === 'dist' && file.startsWith(`${nested}/`)) continue;
    if (!/\.js(\.map)?$/.test(file)) continue;
    const path = relative(output, file);
    const source = join(repository, path.startsWith('examples/') ? '.' : target.root, path);
    if (!existsSync(source) && !existsSync(source.replace(/\.js(\.map)?$/, '.ts'))) rmSync(file);
  }
}
