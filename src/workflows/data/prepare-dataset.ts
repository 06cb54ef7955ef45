// The workflow that prepares a dataset: reads its files, checks the tasks that have solutions, and writes what passed. Records hold what is
// done, so a preparation that was cancelled or lost goes on where it stopped when it is started again.
import { proxyActivities, setCurrentDetails, setHandler } from '@temporalio/workflow';
import type { DataActivities, PreparedDataset } from '../../activities/data-contracts.js';
import { dataPolicy } from '../policies.js';
import { markdownTable, plain } from '../status/markdown.js';
import { preparationQuery, type PreparationStatus } from './data-messages.js';

/** Solutions that one activity checks. */
const windowTasks = 200;

/** Workflow id `data/{name}@{version}`. The input is a dataset spec as JSON. */
export async function prepareDataset(spec: unknown): Promise<PreparedDataset> {
  const status: PreparationStatus = {
    ...{ phase: 'reading', tasks: 0, solved: 0, passed: 0, failed: 0 },
    result: null,
  };
  setHandler(preparationQuery, () => status, { description: 'Progress of the preparation' });
  const show = (change: Partial<PreparationStatus>): void => {
    Object.assign(status, change);
    setCurrentDetails(details(status));
  };
  show({});
  const { tasks, solved } = await activities('read', 'read the files').gatherDataset({ spec });
  show({ phase: 'checking', tasks, solved });
  for (let from = 0; from < solved; from += windowTasks) {
    const to = Math.min(solved, from + windowTasks);
    const summary = `check tasks ${from + 1} to ${to} of ${solved} that have solutions`;
    const { passed, failed } = await activities(`check-${from}`, summary).gateTasks({ spec, from, to });
    show({ passed: status.passed + passed, failed: status.failed + failed });
  }
  show({ phase: 'writing' });
  const result = await activities('write', 'split and write the dataset').finishDataset({ spec });
  show({ phase: 'completed', result });
  return result;
}

function activities(activityId: string, summary: string) {
  return proxyActivities<DataActivities>({ ...dataPolicy, activityId, summary });
}

function details({ phase, tasks, solved, passed, failed, result }: PreparationStatus): string {
  return markdownTable([
    ['phase', `**${phase}**`],
    ['tasks selected', tasks.toLocaleString('en')],
    ['with a solution', solved.toLocaleString('en')],
    ['checked', `${passed + failed}: **${passed}** passed, ${failed} failed`],
    ...(result
      ? [
          ['dataset', `\`${plain(result.dataset)}\``],
          ['training tasks', String(result.train_tasks)],
          ['held out', String(result.held_out_tasks)],
        ]
      : []),
  ]);
}
