// What all commands share: how an error looks, and where the store is.
import { Option } from 'commander';

export const defaultStore = './.longhaul/store';

/** `--store`, then LONGHAUL_STORE, then the embedded stack's store. */
export function storeOption(): Option {
  return new Option('--store <address>', 'object store: dir:/path or s3://bucket/prefix')
    .env('LONGHAUL_STORE')
    .default(`dir:${defaultStore}`);
}

/**
 * Turns an action into one that ends with exit code 1 and a readable line on failure. With `--json` the line is
 * `{"error":{"name","message"}}` on standard output, so that a script reads one format. LONGHAUL_DEBUG adds the stack.
 */
export function withOutput<Arguments extends unknown[]>(
  action: (...args: Arguments) => Promise<void> | void,
): (...args: Arguments) => Promise<void> {
  return async (...args) => {
    try {
      await action(...args);
    } catch (error) {
      process.exitCode = 1;
      printError(error, args.some(asksForJson));
    }
  };
}

function printError(error: unknown, json: boolean): void {
  const { name, message } = error instanceof Error ? error : { name: 'Error', message: String(error) };
  if (json) console.log(JSON.stringify({ error: { name, message } }));
  else console.error(`error: ${message}`);
  if (process.env['LONGHAUL_DEBUG'] && error instanceof Error) console.error(error.stack);
}

function asksForJson(argument: unknown): boolean {
  return typeof argument === 'object' && argument !== null && 'json' in argument && argument.json === true;
}
