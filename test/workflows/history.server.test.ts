// The golden histories replay with the current code. To prove that replay notices changes, the workflow's code is changed in small ways,
// and each change must make a replay fail.
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type History, historyFromJSON, historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import {
  bundleWorkflowCode,
  DefaultLogger,
  type InjectedSinks,
  type ReplayWorkerOptions,
  Worker,
} from '@temporalio/worker';
import { DeterminismViolationError } from '@temporalio/workflow';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTemporal } from '../support/servers/temporal-server.js';
import { goldenLives, goldenServer } from './golden-lives.js';
import { workflowBundle } from './scripted-run.js';
import type { EndedStep, TraceSinks } from '../../src/workflows/step-tracing.js';

const repository = fileURLToPath(new URL('../..', import.meta.url));
const folder = join(repository, 'test/workflows/golden');
const pathOf = (life: string): string => join(folder, `${life}.json`);
const golden = (life: string): History => historyFromJSON(JSON.parse(readFileSync(pathOf(life), 'utf8')));
const lives = Object.keys(goldenLives);

/** Leaves out the recording machine's name and paths, which say nothing about a run. */
function impersonal(member: string, value: unknown): unknown {
  if (member === 'stackTrace') return '';
  return typeof value === 'string' ? value.replace(/^[0-9]+@.*?(-[0-9a-f]{32})?$/, 'worker$1') : value;
}

/** Each golden history with the error of its replay, if it failed. */
type Failures = [string, unknown][];

/** All in one worker, because a worker takes longer to start than a history to replay. */
async function replayed(options: ReplayWorkerOptions): Promise<Failures> {
  const failures: Failures = [];
  const histories = lives.map((life) => ({ workflowId: life, history: golden(life) }));
  for await (const { workflowId, error } of Worker.runReplayHistories(options, histories))
    failures.push([workflowId, error]);
  return failures;
}

describe('golden histories', () => {
  // Only for intended changes: executions under way cannot follow them (docs/upgrades.md).
  it('are written again', async ({ skip }) => {
    skip(!process.env['LONGHAUL_WRITE_GOLDEN'], 'they are written only with LONGHAUL_WRITE_GOLDEN=1');
    const temporal = await startTemporal(goldenServer);
    mkdirSync(folder, { recursive: true });
    try {
      for (const [life, record] of Object.entries(goldenLives)) {
        const history = JSON.parse(historyToJSON(await record(temporal))) as unknown;
        writeFileSync(pathOf(life), `${JSON.stringify(history, impersonal)}\n`);
      }
    } finally {
      await temporal.stop();
    }
  });

  it('have one file for each life that can be recorded', () => {
    expect(readdirSync(folder).sort()).toEqual(lives.map((life) => `${life}.json`).sort());
  });

  describe('replay with the current code', () => {
    let failures: Failures;
    beforeAll(async () => void (failures = await replayed({ workflowBundle: await workflowBundle() })));

    it.each(lives)('%s', (life) => expect(failures).toContainEqual([life, undefined]));
  });

  describe('replay on a worker that traces', () => {
    const steps: (EndedStep & { life: string })[] = [];
    let failures: Failures;
    beforeAll(async () => {
      const sinks: InjectedSinks<TraceSinks> = {
        trace: {
          step: {
            fn: ({ workflowId }, ended) => void steps.push({ ...ended, life: workflowId }),
            callDuringReplay: true,
          },
        },
      };
      failures = await replayed({ workflowBundle: await workflowBundle(['step-tracing']), sinks });
    });

    it.each(lives)('%s', (life) => {
      expect(failures).toContainEqual([life, undefined]);
      const updates = golden(life).events?.filter(({ activityTaskScheduledEventAttributes: scheduled }) =>
        scheduled?.activityId?.endsWith('/update'),
      );
      const committed = steps.filter(({ life: of, step, failed }) => of === life && step > 0 && !failed);
      // A sweep has no steps.
      expect(committed.length > 0).toBe((updates?.length ?? 0) > 0);
      expect(committed.length).toBeLessThanOrEqual(updates?.length ?? 0);
    });
  });

  it('include continue-as-new, a block, a move to another node, a pause and a cancellation', () => {
    const types = (life: string): string => JSON.stringify(golden(life).events);
    const last = golden('begun-anew').events?.at(-1);
    expect(last?.workflowExecutionContinuedAsNewEventAttributes).toBeTruthy();
    expect(types('begun-anew')).toContain('continuedExecutionRunId');
    expect(golden('cancelled').events?.at(-1)?.workflowExecutionCanceledEventAttributes).toBeTruthy();
    const queues = (golden('moved').events ?? []).flatMap(
      (event) => event.activityTaskScheduledEventAttributes?.taskQueue?.name ?? [],
    );
    expect(queues).toEqual(
      expect.arrayContaining(['longhaul-node.golden-lost.gpu', 'longhaul-node.golden-found.gpu']),
    );
  });
});

interface Change {
  file: string;
  from: string;
  to: string;
  imports?: string;
}

/** Changes that a person might make to the workflow's code; `what` says how a history would then differ. */
const mutations: (Change & { what: string; life: string })[] = [
  {
    what: 'activities have other ids',
    life: 'training-run',
    file: 'run-activities.ts',
    from: "padStart(6, '0')",
    to: "padStart(7, '0')",
  },
  {
    what: 'an activity is left out',
    life: 'training-run',
    file: 'run/training-run.ts',
    from: 'await this.checkpoints.keepLast(this.step);',
    to: '',
  },
  {
    what: 'two activities change places',
    life: 'fork',
    file: 'run/training-run.ts',
    from: "await this.checkpoints.keepLast(this.step);\n    this.collections.startBeside(this.step);\n    await this.evaluate('final');",
    to: "this.collections.startBeside(this.step);\n    await this.evaluate('final');\n    await this.checkpoints.keepLast(this.step);",
  },
  {
    what: 'an activity of another type is scheduled',
    life: 'blocked',
    file: 'run/training-run.ts',
    from: '.writeReport({ run })',
    to: '.planStep({ run })',
  },
  {
    what: 'a search attribute is not set any more',
    life: 'begun-anew',
    file: 'run/run-progress.ts',
    from: "this.publish(this.status.blocked ? 'blocked' : failing ? 'failing' : this.coarse);",
    to: '',
  },
  {
    what: 'a sweep’s pairs have other ids',
    life: 'sweep',
    file: 'sweep/eval-sweep.ts',
    from: '`evaluate-sweep-${pair.n}',
    to: '`evaluate-pair-${pair.n}',
  },
  {
    what: 'a timer comes before the first activity',
    life: 'moved',
    ...timerAtOpening("await condition(() => false, '1 second');"),
  },
];

/** A change of the code that opens a run: `statement` waits before the first activity. */
function timerAtOpening(statement: string): Change {
  const first = 'const opened = await untilFixed(';
  return {
    file: 'run/training-options.ts',
    from: first,
    to: `${statement}\n  ${first}`,
    imports: "import { condition, patched } from '@temporalio/workflow';\n",
  };
}

describe('a golden history', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'longhaul-mutations-'));
  symlinkSync(join(repository, 'node_modules'), join(scratch, 'node_modules'));
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));

  let copies = 0;
  const bundleOf = ({ file, from, to, imports = '' }: Change) => {
    const copy = join(scratch, `copy-${++copies}`, 'workflows');
    // The folders from which the workflows' bundle is built.
    for (const part of ['workflows', 'spec'])
      cpSync(join(repository, 'src', part), join(copy, '..', part), { recursive: true });
    const path = join(copy, file);
    const code = readFileSync(path, 'utf8');
    if (!code.includes(from))
      throw new Error(`${file} holds no ${JSON.stringify(from)}: write the mutation again`);
    writeFileSync(path, `${imports}${code.replace(from, to)}`);
    return bundleWorkflowCode({ workflowsPath: join(copy, 'index.ts'), logger: new DefaultLogger('ERROR') });
  };

  it('replays with an unchanged copy of the code, so the failures below come from the changes', async () => {
    const bundle = await bundleOf({ file: 'index.ts', from: '', to: '' });
    expect(await replayed({ workflowBundle: bundle })).toEqual(lives.map((life) => [life, undefined]));
  });

  it.each(mutations)('does not replay if $what', async ({ life, ...change }) => {
    const replay = Worker.runReplayHistory({ workflowBundle: await bundleOf(change) }, golden(life));
    await expect(replay).rejects.toBeInstanceOf(DeterminismViolationError);
  });

  // How a change that only new executions may make is written (docs/upgrades.md). The last of the mutations is this change without the guard.
  it('replays if a timer before the first activity is guarded by `patched`', async () => {
    const guarded = timerAtOpening("if (patched('opening-timer')) await condition(() => false, '1 second');");
    expect(await replayed({ workflowBundle: await bundleOf(guarded) })).toEqual(
      lives.map((life) => [life, undefined]),
    );
  });
});
