import { execFileSync } from 'node:child_process';
import { appendFileSync, cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { cachedWorkflowBundle, importedValues } from '../../src/workers/orchestrator/workflow-bundle.js';
import { workflowBundle } from './scripted-run.js';

const root = new URL('../..', import.meta.url).pathname;

describe('the workflow bundle', () => {
  it('contains only control flow: no schema library, store, network or activity', async () => {
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
  });

  it('is built again when a file in a folder that it imports has changed', async () => {
    const scratch = mkdtempSync(join(tmpdir(), 'longhaul-bundle-'));
    onTestFinished(() => rmSync(scratch, { recursive: true, force: true }));
    symlinkSync(join(root, 'node_modules'), join(scratch, 'node_modules'));
    for (const part of ['workflows', 'spec'])
      cpSync(join(root, 'src', part), join(scratch, part), { recursive: true });
    const bundle = () => cachedWorkflowBundle(join(scratch, 'workflows'), join(scratch, 'cache'));
    const first = await bundle();
    expect(await bundle()).toBe(first);
    appendFileSync(join(scratch, 'workflows/run/training-run.ts'), '// another build\n');
    expect(await bundle()).not.toBe(first);
  });

  it('imports from other folders only types and the listed files', () => {
    const folder = join(root, 'src/workflows');
    const allowed = importedValues.map((module) => join(folder, `${module}.js`));
    const outside: string[] = [];
    for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.ts')) continue;
      const file = join(folder, name);
      const imports = readFileSync(file, 'utf8').matchAll(/^import (type )?[^;]*from '(\.[^']*)';/gms);
      for (const [, type, specifier = ''] of imports) {
        const target = join(dirname(file), specifier);
        if (target.startsWith(`${folder}/`) || type !== undefined) continue;
        outside.push(target);
      }
    }
    expect([...new Set(outside)].sort()).toEqual(allowed.sort());
  });

  it('is loaded by an SDK with a single copy of protobufjs 8', () => {
    // With two copies, `runReplayHistory` throws "type must be a Type" for JSON histories.
    const found = execFileSync(
      'find',
      // The slash at the end is needed because the folder may be a link.
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
