// Where the native engine is.
import { builtToolPath } from './built-tool.js';

/** LONGHAUL_ENGINE, or the engine of the last build. Throws if neither exists. */
export function findEngineBinary(): string {
  const path = process.env['LONGHAUL_ENGINE'] || builtToolPath('engine');
  if (path) return path;
  throw new Error(
    'the native engine has not been built: run `npm run build:native`, or name one with LONGHAUL_ENGINE',
  );
}
