// Entry of the command line.
import { runCommandLine } from './program.js';

try {
  process.exitCode = await runCommandLine(process.argv.slice(2));
} catch (error) {
  console.error(`error: ${error instanceof Error ? error.message : String(error)}`);
  if (process.env['LONGHAUL_DEBUG'] && error instanceof Error) console.error(error.stack);
  process.exitCode = 1;
}
