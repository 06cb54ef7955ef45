// `longhaul env serve`: runs the built-in environment server in the foreground and passes its flags on.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { withOutput } from '../output.js';

const serverEntry = fileURLToPath(new URL('../../environments/server/main.js', import.meta.url));

export function register(program: Command): void {
  const environments = program
    .command('env')
    .description('the built-in environments: `env serve` serves them over OpenEnv');
  environments
    .command('serve')
    .description('serve the built-in apps over OpenEnv (all flags: longhaul env serve -- --help)')
    .argument('[flags...]', 'flags of the server, after --')
    .allowUnknownOption()
    .helpOption(false)
    .action(withOutput(async (flags: string[]) => serve(flags)));
}

async function serve(flags: readonly string[]): Promise<void> {
  const server = spawn(process.execPath, [serverEntry, ...flags], { stdio: 'inherit' });
  const pass = (signal: NodeJS.Signals): void => void server.kill(signal);
  process.on('SIGINT', pass).on('SIGTERM', pass);
  process.exitCode = await new Promise<number>((resolve) => {
    server.once('exit', (code, signal) => resolve(code ?? (signal ? 1 : 0)));
  });
}
