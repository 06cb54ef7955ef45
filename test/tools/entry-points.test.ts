// What a person starts first, in a checkout that is not set up.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { register } from '../../src/cli/quickstart-command.js';

let checkout: string;

beforeEach(() => {
  checkout = mkdtempSync(join(tmpdir(), 'longhaul-checkout-'));
  for (const name of ['bin', 'tools']) cpSync(name, join(checkout, name), { recursive: true });
});

afterEach(() => rmSync(checkout, { recursive: true, force: true }));

function run(file: string, ...args: string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(file, args, { cwd: checkout, encoding: 'utf8', timeout: 50_000 });
}

test('bin/longhaul names the script that sets the checkout up', () => {
  const { status, stderr } = run(process.execPath, 'bin/longhaul', 'up');
  expect(status).toBe(1);
  const script = /npm run (\S+?)`/.exec(stderr)?.[1] ?? '';
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
  expect(scripts[script]).toBe('node tools/setup.mjs');
});

describe('npm run quickstart', () => {
  test('refuses a mistyped flag before it sets anything up', () => {
    const { status, stdout, stderr } = run('bash', 'tools/quickstart.sh', '--sed', '2');
    expect(status).toBe(2);
    expect(stderr).toContain("'--sed'");
    expect(stderr).toContain('--seed');
    expect(stdout + stderr).not.toContain('Setting up');
  });

  test('takes the flags that the command takes', () => {
    const program = new Command();
    register(program);
    const flags = program.commands.flatMap(({ options }) => options.map(({ long }) => long ?? ''));
    const { stderr } = run(process.execPath, 'tools/quickstart-flags.mjs', '--mistyped');
    expect([...stderr.matchAll(/--[a-z-]+(?=[ ,.])/g)].map(([flag]) => flag).sort()).toEqual(
      [...flags, '--help'].sort(),
    );
  });

  test('leaves sound flags to the command', () => {
    const args = ['--seed', '2', '--folder=here', '--keep-open', '--json'];
    expect(run(process.execPath, 'tools/quickstart-flags.mjs', ...args)).toMatchObject({ status: 0 });
  });
});
