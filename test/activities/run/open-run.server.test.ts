// What a start does to a run's records: it creates them, finds them, or refuses with every problem and its fix.
import { appendFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { commitBase } from '../../../src/activities/step/commit-base.js';
import { openRun } from '../../../src/activities/run/open-run.js';
import { saveState, uploadCheckpoint } from '../../../src/activities/step/save-state.js';
import { recordControl } from '../../../src/activities/run/record-control.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import { assetKey, episodeKey, runKey } from '../../../src/store/record-keys.js';
import { readOwner } from '../../../src/store/runs/owners.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { lastCommittedStep, readPlan, readRun } from '../../../src/store/runs/run-records.js';
import { startForeignServer } from '../../environments/foreign-server.js';
import { lastSftStep, run, tamper, testTasks, workflow } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';
import { type Changes, messageOf, noRunIsLeft, part, second } from './starts.js';

useHarness();

describe('a first start', () => {
  it('writes the run with the digests of everything it depends on, and claims it', async () => {
    const opened = await harness.open();
    expect(opened).toMatchObject({
      outline: {
        run,
        phases: [
          { name: 'drill', kind: 'sft', first: 1, last: 2 },
          { name: 'grpo', kind: 'grpo', first: 3, last: 6 },
        ],
      },
      owner: 1,
      position: { step: -1, state: null, lastCheckpoint: null },
      control: { n: 0, paused: false },
    });
    const record = await readRun(harness.store, run);
    expect(record.dataset.name).toBe('files');
    for (const digest of [record.tokenizer, record.chat_template])
      expect(await harness.store.head(assetKey(digest))).not.toBeNull();
  });

  it('says where people can follow the run', async () => {
    const tracking = { wandb: { entity: 'team', project: 'crm', mode: 'offline' } };
    const { outline } = await harness.open({ ...harness.spec, tracking, slack: { channel: '#runs' } });
    expect(outline.followed_in).toEqual([`W&B team/crm/${run} (offline)`, 'Slack #runs']);
    expect((await harness.open()).outline).not.toHaveProperty('followed_in');
  });

  it('creates one run, even if two starts happen at the same time', async () => {
    const opened = await Promise.all([harness.open(), harness.open()]);
    // Two claims by one execution within one millisecond are one record.
    for (const { owner } of opened) expect([1, 2]).toContain(owner);
    expect(new Set(opened.map(({ outline }) => JSON.stringify(outline))).size).toBe(1);
  });
});

describe('a later start', () => {
  it('continues from the records: position, control, a new owner', async () => {
    await harness.advance(3);
    const reference = { run, step: 3, owner: 1 };
    await harness.attempt('save', () => saveState(harness.node, reference));
    await harness.attempt('upload', () => uploadCheckpoint(harness.node, reference));
    await harness.advance(4);
    await recordControl(harness.orchestrator, { run, owner: 1, updateId: 'u1', change: { kind: 'pause' } });
    const opened = await harness.open();
    expect(opened).toMatchObject({
      owner: 2,
      position: { step: 4, lastCheckpoint: 3 },
      control: { n: 1, paused: true },
    });
  });

  it('finds the run even if its original files are gone', async () => {
    await harness.open();
    const { tasks, demonstrations } = part('data') as { tasks: string; demonstrations: string };
    for (const file of [tasks, demonstrations]) rmSync(file);
    expect((await harness.open()).owner).toBe(2);
  });

  it('with another spec is refused with the differences and the ways to continue', async () => {
    await harness.open();
    const message = await messageOf({ ...harness.spec, seed: 6, trainer: { ...part('trainer'), lr: 0.5 } });
    expect(message).toContain('seed (stored 5, computed 6)');
    expect(message).toContain('trainer.lr (stored 0.001, computed 0.5)');
    expect(message).toContain(`longhaul train --run ${run};`);
    expect(message).toContain(`longhaul set ${run} lr=…`);
    expect(message).toContain('choose a new name');
    expect(message).not.toContain('fork');
  });

  it('with more steps is refused, and the message names the fork that would take these steps', async () => {
    await harness.open();
    const message = await messageOf({
      ...harness.spec,
      trainer: { ...part('trainer'), max_training_steps: 99 },
    });
    expect(message).toContain(
      `to train it further, fork it: longhaul fork ${run} --name NEW --set max_training_steps=99; `,
    );
  });

  it('may ask for other nodes than the last start: placement does not affect results', async () => {
    expect(await harness.open()).not.toHaveProperty('placement');
    const plain = (await readRun(harness.store, run)).spec;
    expect(plain).not.toHaveProperty('placement');
    const placed = (placement: object) => harness.open({ ...harness.spec, placement });
    expect((await placed({ nodes: 2 })).placement).toEqual({ nodes: 2, priority: 0 });
    expect((await placed({ priority: 7 })).placement).toEqual({ nodes: 1, priority: 7 });
    expect((await readRun(harness.store, run)).spec).toEqual(plain);
  });

  it('counts the run’s spending from its records, and may raise the last start’s limit', async () => {
    const limited = (max_tokens: number) => harness.open({ ...harness.spec, budget: { max_tokens } });
    expect((await limited(10)).budget?.spent).toEqual({ tokens: 0, gpu_seconds: 0 });
    await harness.advance(lastSftStep + 1);
    const used = async (step: number) => {
      const answer = await harness.plan(step);
      const record = await readPlan(harness.store, { run, step, plan: answer.plan });
      if (record.kind !== 'grpo') throw new Error('it is a step of GRPO');
      const keys = record.slots.flatMap(({ slot }) => [0, 1].map((at) => episodeKey(run, step, slot, at)));
      const episodes = await Promise.all(keys.map((key) => requireRecord(harness.store, key, 'episode')));
      return episodes.reduce((sum, { logprobs }) => sum + logprobs.length, 0);
    };
    const opened = await limited(20);
    expect(opened.position.step).toBe(lastSftStep + 1);
    expect(opened.budget).toMatchObject({
      limits: [{ name: 'max_tokens', limit: 20 }],
      spent: { tokens: await used(lastSftStep + 1) },
      startedAt: (await readRun(harness.store, run)).observed.started_at,
    });
    expect(opened.budget?.spent.gpu_seconds).toBeGreaterThan(0);
    expect((await readOwner(harness.store, run))?.observed.budget).toEqual({ max_tokens: 20 });
    expect(await harness.open()).not.toHaveProperty('budget');
  });

  it("uses the environment's address in its own spec, because a server may have moved", async () => {
    const foreign = await startForeignServer(() => '0');
    const moved = (url: string) => ({ ...harness.spec, environments: [{ env_key: 'tracker', url }] });
    await harness.open(moved(foreign.url));
    const asked: (string | undefined)[] = [];
    const backendFor = harness.node.backendFor.bind(harness.node);
    harness.node.backendFor = (environment, ...rest) => {
      asked.push(environment.url);
      return backendFor(environment, ...rest);
    };
    const elsewhere = await startForeignServer(() => '0');
    try {
      await harness.open(moved(elsewhere.url));
      await foreign.close();
      await harness.advance(lastSftStep + 1);
      expect(new Set(asked)).toEqual(new Set([elsewhere.url]));
    } finally {
      await elsewhere.close();
    }
  });

  it('is refused if a file has changed: the message names the file and the ways to continue', async () => {
    await harness.open();
    const { tasks } = part('data') as { tasks: string };
    const { tokenizer } = part('model') as { tokenizer: string };
    const changed = `${harness.folder}/tokenizer.json`;
    writeFileSync(changed, `${readFileSync(tokenizer, 'utf8')} `);
    appendFileSync(tasks, `${JSON.stringify({ ...testTasks()[0], task_key: 'more' })}\n`);
    const message = await messageOf(
      { ...harness.spec, model: { ...part('model'), tokenizer: changed } },
      second,
    );
    expect(message).toContain('2 problems');
    const { tokenizer: stored } = await readRun(harness.store, run);
    expect(message).toMatch(
      new RegExp(`model.tokenizer: ${changed} differs from what .*stored ${stored}, found`),
    );
    expect(message).toMatch(/data\.tasks: .*tasks\.jsonl differs from what run "unit" was started with/);
    expect(message).toContain('start a run with a new name');
    writeFileSync(tasks, 'no task');
    expect(await messageOf(harness.spec, second)).toMatch(/data\.tasks: .*found unusable/);
  });

  it('is refused while another workflow is open or cannot be asked, but not with --take-over', async () => {
    await harness.open();
    const other = { ...workflow, firstExecutionRunId: '22222222-0000-0000-0000-000000000000' };
    for (const state of ['open', 'unreachable'] as const) {
      const deps = { ...harness.orchestrator, ownerState: () => Promise.resolve(state) };
      await expect(openRun(deps, { spec: harness.spec, workflow: other })).rejects.toMatchObject({
        name: 'RunOwned',
        message: expect.stringContaining('--take-over') as string,
      });
      const taken = await openRun(deps, { spec: harness.spec, workflow: other, takeOver: true });
      expect(taken.position.step).toBe(-1);
      await openRun(harness.orchestrator, { spec: harness.spec, workflow });
    }
  });

  it('takes the run from its owner, and the owner’s activities end', async () => {
    await harness.open();
    const other = { ...workflow, firstExecutionRunId: '22222222-0000-0000-0000-000000000000' };
    await openRun(harness.orchestrator, { spec: harness.spec, workflow: other });
    await expect(commitBase(harness.node, { run, owner: 1 })).rejects.toMatchObject({ name: 'OwnerChanged' });
    expect(await lastCommittedStep(harness.store, run)).toBe(-1);
  });
});

describe('a spec that cannot work is refused, and one message names all problems:', () => {
  afterEach(noRunIsLeft);

  it('mistyped keys, with the most similar valid name', async () => {
    const message = await messageOf({
      ...harness.spec,
      trainer: { ...part('trainer'), learning_rate: 1, ckpt_intervall: 3 },
      generator: { ...part('generator'), max_turn: 3 },
    });
    expect(message).toContain('3 problems');
    expect(message).toContain('ckpt_interval');
    expect(message).toContain('max_turns');
  });

  it('limits that contradict each other', async () => {
    const message = await messageOf({
      ...harness.spec,
      generator: { ...part('generator'), max_sequence_length: 4096 },
    });
    expect(message).toContain('max_sequence_length');
  });

  it('no spec at all', async () => {
    for (const input of [null, 'tiny.yaml', 7, []]) expect(await messageOf(input)).toContain('run spec');
  });

  it('too few held-out tasks, an environment that is not listed, demonstrations that do not exist', async () => {
    const { tasks } = part('data') as { tasks: string };
    appendFileSync(tasks, `${JSON.stringify({ ...testTasks()[0], task_key: 'other', env_key: 'crm' })}\n`);
    const message = await messageOf({
      ...harness.spec,
      data: { ...part('data'), eval_tasks: 50 },
      warm_start: [{ ...(harness.spec['warm_start'] as Changes[])[0], demonstrations: 'expert' }],
    });
    expect(message).toContain(
      'the spec asks for 50 evaluation tasks, but the data has only 4 held-out tasks',
    );
    expect(message).toContain('tasks name the environment "crm"');
    expect(message).toContain('no demonstration of kind "expert"');
    expect(message).toContain('kinds in the data: drill');
  });

  it('a demonstration that cannot be written in the run’s tool format', async () => {
    const { demonstrations } = part('data') as { demonstrations: string };
    const [line = ''] = readFileSync(demonstrations, 'utf8').split('\n');
    const generator = { ...part('generator'), tool_format: 'mistral' };
    writeFileSync(demonstrations, `${line.replace('<tool_call>', '[TOOL_CALLS] <tool_call>')}\n`);
    const message = await messageOf({ ...harness.spec, generator });
    expect(message).toContain('warm_start[0].demonstrations');
    expect(message).toContain('cannot be written with the calls of mistral: its call of');
    writeFileSync(demonstrations, `${line.replace('</tool_call>', ' and</tool_call>')}\n`);
    expect(await messageOf(harness.spec)).toMatch(/line 1: messages\[\d\]\.content has a malformed call: /);
  });

  it('a chat template that refuses a system message', async () => {
    const template = `${harness.folder}/refusing.jinja`;
    const source = readFileSync(part('model')['chat_template'] as string, 'utf8');
    writeFileSync(
      template,
      `{%- if messages[0].role == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}${source}`,
    );
    const message = await messageOf({
      ...harness.spec,
      model: { ...part('model'), chat_template: template },
    });
    expect(message).toMatch(/model\.chat_template.*it refuses a system message: .*System role not supported/);
  });

  it('a task file that does not exist, is cut off, has a duplicate key, or is not text', async () => {
    const { tasks } = part('data') as { tasks: string };
    const whole = readFileSync(tasks, 'utf8');
    writeFileSync(tasks, whole.slice(0, -30));
    expect(await messageOf(harness.spec)).toMatch(
      /tasks\.jsonl is not usable:\n.*line 20: not JSON .*cut off/,
    );
    writeFileSync(tasks, whole + whole.slice(0, whole.indexOf('\n') + 1));
    expect(await messageOf(harness.spec)).toContain('line 21: task_key');
    writeFileSync(tasks, Buffer.from([0xff, 0xfe, 0x00, 0x41]));
    expect(await messageOf(harness.spec)).toContain('is not UTF-8 text');
    rmSync(tasks);
    expect(await messageOf(harness.spec)).toMatch(/tasks\.jsonl is not usable:\n.*cannot be read: ENOENT/);
  });

  it('a tokenizer file that does not exist or cannot be loaded', async () => {
    const broken = `${harness.folder}/tokenizer.json`;
    const spec = { ...harness.spec, model: { ...part('model'), tokenizer: broken } };
    expect(await messageOf(spec)).toContain('model.tokenizer');
    writeFileSync(broken, '{"model":');
    expect(await messageOf(spec)).toContain('do not load');
  });
});

describe('failures that no retry fixes', () => {
  it('reach the workflow with their own type and the whole message, and are not retried', async () => {
    const { openRun: activity } = createOrchestratorActivities(harness.orchestrator);
    const spec = { ...harness.spec, nane: 'x' };
    await expect(harness.attempt('open', () => activity({ spec, workflow }))).rejects.toMatchObject({
      type: 'InvalidSpec',
      nonRetryable: true,
      message: expect.stringContaining('nane') as string,
    });
    await harness.open();
    await tamper(harness.store, runKey(run), (bytes) =>
      bytes.toString().replace('longhaul.run/3', 'longhaul.run/9'),
    );
    await expect(
      harness.attempt('open', () => activity({ spec: harness.spec, workflow })),
    ).rejects.toMatchObject({
      type: 'NewerSchema',
      nonRetryable: true,
      message: expect.stringContaining('longhaul.run/9') as string,
    });
  });
});
