// Finds built or fetched binaries: the set-up writes their paths into `dist/` of the checkout.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export type BuiltTool = 'engine' | 'engine-emulated' | 'temporal' | 'versitygw';

/** Path of the tool from the last set-up, or null. Works from the sources, from `dist/` and from `dist/dev/`. */
export function builtToolPath(tool: BuiltTool): string | null {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    try {
      return readFileSync(join(folder, 'dist', `${tool}-path`), 'utf8').trim();
    } catch {
      if (folder === dirname(folder)) return null;
    }
  }
}

/** Path from LONGHAUL_ENGINE, or of the last build's engine. Throws if neither exists. */
export function findEngineBinary(): string {
  const path = process.env['LONGHAUL_ENGINE'] || builtToolPath('engine');
  if (path) return path;
  throw new Error(
    'the native engine has not been built: run `npm run build:native`, or name an engine with LONGHAUL_ENGINE',
  );
}
