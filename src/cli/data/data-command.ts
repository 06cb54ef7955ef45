// `longhaul data`: prepares datasets, and shows what is in them.
import { resolve } from 'node:path';
import { type Client, WorkflowExecutionAlreadyStartedError, type WorkflowHandle } from '@temporalio/client';
import type { Command } from 'commander';
import type { PreparedDataset } from '../../activities/data-contracts.js';
import { timeSpan, trainingTasks } from '../../report/format.js';
import { datasetId, type DatasetSpec, parseDatasetSpec } from '../../spec/dataset-spec.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import { readSpecValue } from '../../spec/spec-input.js';
import { differences } from '../../store/records/canonical.js';
import { preparationQuery, type PreparationStatus } from '../../workflows/data/data-messages.js';
import type { prepareDataset } from '../../workflows/data/prepare-dataset.js';
import { orchestratorQueue } from '../../workflows/messages.js';
import { beginsWithinMs, followed, hasBegun } from '../followed-workflow.js';
import { printable, withOutput } from '../output.js';
import { type TemporalFlags, withClient, withTemporalFlags } from '../temporal-access.js';
import { inputOfWorkflow } from '../train/workflow-input.js';
import { refuseLargeInput } from '../command-refusals.js';
import { waitingFor, waitingLine } from '../waiting-text.js';
import { addReaders } from './data-readers.js';
import { countsText, excludedText, failedLines, untaughtLines } from './dataset-text.js';

interface PrepareFlags extends TemporalFlags {
  detach?: boolean;
}

type Handle = WorkflowHandle<typeof prepareDataset>;

export function register(program: Command): void {
  const data = program
    .command('data')
    .description('prepare datasets of tasks that are checked, and show them');
  withTemporalFlags(
    data
      .command('prepare <file>')
      .description('make the dataset of a file: read its tasks, check those with solutions, split them'),
    'writes',
  )
    .option('--detach', 'return once its files are read and nothing is wrong with them')
    .option('--json', 'print the result as one JSON object')
    .action(
      withOutput(async (file: string, flags: PrepareFlags) => {
        const spec = parseDatasetSpec(await readSpecValue(file), { file: resolve(file) });
        await withClient(flags, (client) => prepare(client, spec, flags));
      }),
    );
  addReaders(data);
}

async function prepare(client: Client, spec: DatasetSpec, { detach, json }: PrepareFlags): Promise<void> {
  refuseLargeInput(spec, 'the dataset spec');
  const id = datasetId(spec);
  const workflowId = `data/${id}`;
  const handle = await client.workflow
    .start<typeof prepareDataset>('prepareDataset', {
      taskQueue: orchestratorQueue,
      workflowId,
      args: [spec],
    })
    .catch(async (error: unknown): Promise<Handle> => {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      refuseOther(id, await inputOfWorkflow(client, workflowId), spec);
      process.stderr.write(`${id} is being prepared already${detach ? '' : ': following it'}\n`);
      return client.workflow.getHandle<typeof prepareDataset>(workflowId);
    });
  const how = {
    status: preparationQuery,
    text: statusText,
    cancelled: `${id} was cancelled; what it has checked is kept`,
  };
  if (detach) {
    const accepted = await hasBegun(handle, { ...how, begun: ({ phase }) => phase !== 'reading' });
    const started = { dataset: id, workflowId, accepted };
    console.log(json ? JSON.stringify(started) : `started ${id} (workflow ${workflowId})`);
    if (!accepted) process.stderr.write(`${await whyLate(client, handle)}\n`);
    return;
  }
  const result = await followed(handle, how);
  console.log(json ? JSON.stringify(result) : printable(resultText(result)));
}

async function whyLate(client: Client, handle: Handle): Promise<string> {
  const waits = (await waitingFor(client, handle)).map((wait) => `; it ${waitingLine(wait)}`);
  return (
    `its files are not read within ${timeSpan(beginsWithinMs / 1000)}, so they may still be refused` +
    `${waits.join('')}. The same command without --detach follows it, and \`longhaul data show\` says how it ended`
  );
}

function refuseOther(id: string, running: unknown, spec: DatasetSpec): void {
  const found = running === null ? [] : differences(running, spec);
  if (found.length === 0) return;
  const problem = `${id} is being prepared from another spec: ${found.join('; ')}`;
  const fix = 'wait until it is ready, or give a new version';
  throw new InvalidSpec([{ path: 'version', problem, fix }], 'the dataset spec');
}

function statusText({ phase, tasks, solved, spent, passed, failed }: PreparationStatus): string {
  if (phase === 'reading') return 'reading the files';
  if (phase === 'teaching')
    return `teaching: ${solved} of ${tasks} tasks have a solution; ${spent?.tokens ?? 0} tokens spent`;
  const checked = `${passed + failed} of ${solved} tasks with solutions checked, ${failed} failed`;
  return `${phase}: ${tasks} tasks selected; ${checked}`;
}

function resultText({
  dataset,
  train_tasks,
  held_out_tasks,
  excluded,
  demonstrations,
  failed = {},
  untaught = {},
  warnings = [],
}: PreparedDataset): string {
  return [
    `${dataset}: ${trainingTasks(train_tasks)}, ${held_out_tasks} held out`,
    `left out: ${excludedText(excluded)}`,
    ...failedLines(failed),
    `demonstrations, by kind: ${countsText(demonstrations)}`,
    ...untaughtLines(untaught),
    ...warnings.map((warning) => `warning: ${warning}`),
    `look at it: longhaul data show ${dataset}`,
    `train on it: in a run's spec, data: {source: ${dataset}}`,
  ].join('\n');
}
