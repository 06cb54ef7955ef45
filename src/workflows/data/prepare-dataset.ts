// The workflow that prepares a dataset: reads its files, checks the tasks that have solutions, and writes what passed. Records hold what is
// done, so a preparation that was cancelled or lost goes on where it stopped when it is started again.
import { proxyActivities, setCurrentDetails, setHandler } from '@temporalio/workflow';
import type { DataActivities, PreparedDataset } from '../../activities/data-contracts.js';
import { dataPolicy } from '../policies.js';
import { markdownTable, plain } from '../status/markdown.js';
import { preparationQuery, type PreparationStatus } from './data-messages.js';

/** Solutions that one activity checks. */
const windowTasks = 200;
/** Tasks that one activity lets the teacher try. */
const windowTaught = 50;

/** Workflow id `data/{name}@{version}`. The input is a dataset spec as JSON. */
export async function prepareDataset(spec: unknown): Promise<PreparedDataset> {
  const status: PreparationStatus = {
    ...{ phase: 'reading', tasks: 0, solved: 0, passed: 0, failed: 0 },
    ...{ spent: null, result: null },
  };
  setHandler(preparationQuery, () => status, { description: 'Progress of the preparation' });
  const show = (change: Partial<PreparationStatus>): void => {
    Object.assign(status, change);
    setCurrentDetails(details(status));
  };
  show({});
  const read = await activities('read', 'read the files').gatherDataset({ spec });
  show({ tasks: read.tasks, solved: read.solved });
  if (read.has_teacher) await teachAll(spec, read.tasks - read.solved, status, show);
  show({ phase: 'checking' });
  // A teacher's successes are counted with the first answer: an earlier execution may have had more of the budget.
  let solved = read.has_teacher ? windowTasks : read.solved;
  for (let from = 0; from < solved; from += windowTasks) {
    const summary = `check the solutions from ${from + 1} on`;
    const gated = await activities(`check-${from}`, summary).gateTasks({
      spec,
      from,
      to: from + windowTasks,
    });
    solved = gated.solved;
    show({ solved, passed: status.passed + gated.passed, failed: status.failed + gated.failed });
  }
  show({ phase: 'writing' });
  const result = await activities('write', 'split and write the dataset').finishDataset({ spec });
  show({ phase: 'completed', result });
  return result;
}

async function teachAll(
  spec: unknown,
  unsolved: number,
  status: PreparationStatus,
  show: (change: Partial<PreparationStatus>) => void,
): Promise<void> {
  show({ phase: 'teaching' });
  for (let from = 0; from < unsolved; from += windowTaught) {
    const to = Math.min(unsolved, from + windowTaught);
    const summary = `teach tasks ${from + 1} to ${to} of ${unsolved} without a solution`;
    const taught = await activities(`teach-${from}`, summary).teachTasks({ spec, from, to });
    show({ solved: status.solved + taught.solved, spent: taught.spent });
    if (taught.exhausted) return;
  }
}

function activities(activityId: string, summary: string) {
  return proxyActivities<DataActivities>({ ...dataPolicy, activityId, summary });
}

function details({ phase, tasks, solved, spent, passed, failed, result }: PreparationStatus): string {
  return markdownTable([
    ['phase', `**${phase}**`],
    ['tasks selected', tasks.toLocaleString('en')],
    ['with a solution', solved.toLocaleString('en')],
    ...(spent ? [['spent by the teacher', spentText(spent)]] : []),
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
