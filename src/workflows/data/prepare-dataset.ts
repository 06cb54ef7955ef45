// The workflow that prepares a dataset: reads its files, checks the tasks that have solutions, and writes what passed. Records hold what is
// done, so a preparation that was cancelled or lost goes on where it stopped when it is started again.
import { proxyActivities, setCurrentDetails, setHandler } from '@temporalio/workflow';
import type { DataActivities, PreparedDataset } from '../../activities/data-contracts.js';
import { withCheckedAnswers } from '../activity-result-checks.js';
import { dataPolicy } from '../policies.js';
import { markdownTable, plain } from '../status/markdown.js';
import { preparationQuery, type PreparationStatus } from './data-messages.js';

/** Number of tasks whose solutions one activity checks. */
const windowTasks = 200;
/** Number of tasks that the teacher tries in one activity. */
const windowTaught = 50;

/** Workflow id `data/{name}@{version}`. The input is a dataset spec as JSON. */
export async function prepareDataset(spec: unknown): Promise<PreparedDataset> {
  const status: PreparationStatus = {
    ...{ phase: 'reading', tasks: 0, solved: 0, passed: 0, failed: 0 },
    ...{ spent: null, budget_spent: false, result: null },
  };
  setHandler(preparationQuery, () => status, { description: 'Progress of the preparation' });
  const show = (change: Partial<PreparationStatus>): void => {
    Object.assign(status, change);
    setCurrentDetails(details(status));
  };
  show({});
  const read = await activities('read', 'read the files').gatherDataset({ spec });
  show({ tasks: read.tasks, solved: read.solved });
  if (read.has_teacher) await teachAll(spec, read.tasks, status, show);
  show({ phase: 'checking' });
  for (let from = 0; from < read.tasks && status.solved > 0; from += windowTasks) {
    const to = Math.min(read.tasks, from + windowTasks);
    const summary = `check the solutions of tasks ${from + 1} to ${to} of ${read.tasks}`;
    const gated = await activities(`check-${from}`, summary).gateTasks({ spec, from, to });
    show({ passed: status.passed + gated.passed, failed: status.failed + gated.failed });
  }
  show({ phase: 'writing' });
  const result = await activities('write', 'split and write the dataset').finishDataset({ spec });
  show({ phase: 'completed', result });
  return result;
}

async function teachAll(
  spec: unknown,
  tasks: number,
  status: PreparationStatus,
  show: (change: Partial<PreparationStatus>) => void,
): Promise<void> {
  show({ phase: 'teaching' });
  let spent = { tokens: 0, usd: 0 };
  for (let from = 0; from < tasks; from += windowTaught) {
    const to = Math.min(tasks, from + windowTaught);
    const summary = `let the teacher try the unsolved of tasks ${from + 1} to ${to} of ${tasks}`;
    const taught = await activities(`teach-${from}`, summary).teachTasks({ spec, from, to, spent });
    spent = taught.spent;
    show({ solved: status.solved + taught.solved, spent, budget_spent: taught.exhausted });
  }
}

function activities(activityId: string, summary: string) {
  return withCheckedAnswers(
    proxyActivities<DataActivities>({ ...dataPolicy, activityId, summary }),
    activityId,
  );
}

function details({
  phase,
  tasks,
  solved,
  spent,
  budget_spent,
  passed,
  failed,
  result,
}: PreparationStatus): string {
  return markdownTable([
    ['phase', `**${phase}**`],
    ['tasks selected', tasks.toLocaleString('en')],
    ['with a solution', solved.toLocaleString('en')],
    ...(spent ? [['spent by the teacher', `${spentText(spent)}${budget_spent ? ': its budget' : ''}`]] : []),
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

function spentText({ tokens, usd }: { tokens: number; usd: number }): string {
  return `${tokens.toLocaleString('en')} tokens${usd === 0 ? '' : `, $${usd.toFixed(2)}`}`;
}
