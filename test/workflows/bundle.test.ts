import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { importedValues } from '../../src/workers/orchestrator/workflow-bundle.js';
import { workflowBundle } from './scripted-run.js';

const root = new URL('../..', import.meta.url).pathname;

describe('the workflow bundle', () => {
  it('holds nothing but control flow: no schema library, no store, no network, no activity', async () => {
    const code = readFileSync((await workflowBundle()).codePath, 'utf8');
    for (const module of [
      'node_modules/zod',
      '@aws-sdk',
      'better-sqlite3',
      'src/store/',
      'src/activities/',
      'src/engine/',
    ]) {
      expect(code.includes(module), `${module} is in the bundle`).toBe(false);
    }
    expect(code.length).toBeLessThan(3_000_000);
  }, 90_000);

  it('sees of the other parts types only, and the two files that are named', () => {
    const folder = join(root, 'src/workflows');
    for (const name of readdirSync(folder)) {
      const imports = readFileSync(join(folder, name), 'utf8').match(/^import [^;]*;/gms) ?? [];
      const isAllowed = (one: string): boolean =>
        importedValues.some((module) => one.includes(`from '${module}.js'`));
      for (const line of imports.filter((one) => one.includes("from '../") && !isAllowed(one))) {
        expect(line, `${name}: ${line}`).toMatch(/^import type /);
      }
    }
  });

  it('is loaded by an SDK that has one copy of protobufjs 8', () => {
    // Two copies make `runReplayHistory` throw "type must be a Type" on JSON histories.
    const found = execFileSync(
      'find',
      // With a slash behind it: it may be a link.
      [join(root, 'node_modules/'), '-type', 'd', '-name', 'protobufjs', '-not', '-path', '*/ext/*'],
      {
        encoding: 'utf8',
      },
    );
    const versions = found
      .trim()
      .split('\n')
      .map(
        (path) =>
          (JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as { version: string }).version,
      );
    expect(versions.filter((version) => version.startsWith('8.')).length).toBe(1);
  });
});
