// teachTasks: lets the teacher try tasks that have no solution, within the budget. Each try is a record; a recorded try is not made again.
import { gatheredItems, isSuccess, taskName, triesOf } from '../../data/preparation/solved-tasks.js';
import { ChatEndpoint } from '../../data/preparation/teacher/chat-endpoint.js';
import { type Spending, teach } from '../../data/preparation/teacher/teacher-episode.js';
import { inParallel } from '../../base/in-parallel.js';
import type { EnvironmentBackend } from '../../environments/environment.js';
import type { FailureLedger } from '../../episode/failure-ledger.js';
import { parseDatasetSpec, type TeacherSpec } from '../../spec/dataset-spec.js';
import type { GatheredRecord, TaughtRecord } from '../../spec/records/preparation-records.js';
import type { Task } from '../../spec/records/task.js';
import { gatheredKey, taughtKey } from '../../store/record-keys.js';
import { recordDigest } from '../../store/records/canonical.js';
import { adoptOrCreate, requireRecord } from '../../store/records/records.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { TaughtTasks, TeacherSpent } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { type DataScope, playEach } from './played-environments.js';

type Deps = Pick<OrchestratorDeps, 'store'>;

/**
 * Tries the tasks `from`, …, `to` − 1 that have no solution. Throws `EnvironmentsUnavailable`, and `InvalidSpec` if the endpoint cannot be
 * used.
 */
export async function teachTasks(
  { store }: Deps,
  input: { spec: unknown; from: number; to: number; spent: TeacherSpent },
  scope: DataScope,
): Promise<TaughtTasks> {
  const spec = parseDatasetSpec(input.spec);
  const { teacher } = spec;
  if (!teacher) return { solved: 0, spent: input.spent, exhausted: false };
  const gathered = await requireRecord(store, gatheredKey(spec.name, spec.version), 'gathered');
  const { tasks, solutions } = await gatheredItems(store, gathered);
  const unsolved = tasks.slice(input.from, input.to).filter(({ task_key }) => !solutions.has(task_key));
  const items = await inParallel(unsolved, async (task) => ({
    task,
    tries: await triesOf(store, gathered, task.task_key),
  }));
  const budget = new Budget(teacher, input.spent);
  const endpoint = new ChatEndpoint(teacher);
  for (const { tokens } of items.flatMap(({ tries }) => tries)) budget.add(tokens);
  let solved = 0;
  await playEach({ ...spec, store }, items, scope, async ({ task, tries }, { backend, isOver, ledgerOf }) => {
    for (let sample = tries.length; sample < teacher.samples && !tries.some(isSuccess); sample++) {
      if (budget.isOver || isOver()) break;
      const ledger = ledgerOf(String(sample));
      const one = { gathered, backend, ledger, endpoint, task, sample, budget };
      tries.push(await recordTry({ store }, one, scope));
    }
    if (tries.some(isSuccess)) solved += 1;
    scope.progress({ solved, ...budget.spent });
  });
  return { solved, spent: budget.spent, exhausted: budget.isOver };
}

interface Try {
  gathered: GatheredRecord;
  backend: EnvironmentBackend;
  ledger: FailureLedger;
  endpoint: ChatEndpoint;
  task: Task;
  sample: number;
  budget: Budget;
}

async function recordTry(
  { store }: Deps,
  { gathered, backend, ledger, endpoint, task, sample, budget }: Try,
  scope: DataScope,
): Promise<TaughtRecord> {
  const begun = performance.now();
  const taught = await teach(backend, endpoint, { task, sample, spend: budget, ledger }, scope.signal);
  const record: TaughtRecord = {
    schema: 'longhaul.taught/1',
    gathered: recordDigest(gathered),
    task_key: task.task_key,
    sample,
    ...taught,
    observed: {
      at: new Date().toISOString(),
      seconds: Math.round(performance.now() - begun) / 1000,
    },
  };
  await stoppingPoint('task-taught');
  const key = taughtKey(gathered.name, gathered.version, taskName(task.task_key), sample);
  const stored = await adoptOrCreate(store, key, 'taught', record);
  scope.recorded();
  return stored.record;
}

/** Counts what the tries of a preparation have spent. */
class Budget implements Spending {
  readonly spent: TeacherSpent;

  constructor(
    private readonly teacher: TeacherSpec,
    before: TeacherSpent,
  ) {
    this.spent = { ...before };
  }

  add({ prompt, completion }: TaughtRecord['tokens']): void {
    const { usd_per_million: price = { prompt: 0, completion: 0 } } = this.teacher;
    this.spent.tokens += prompt + completion;
    this.spent.usd += (prompt * price.prompt + completion * price.completion) / 1e6;
  }

  get hasBegun(): boolean {
    return this.spent.tokens > 0;
  }

  get isOver(): boolean {
    const { max_tokens = Infinity, max_usd = Infinity } = this.teacher;
    return this.spent.tokens >= max_tokens || this.spent.usd >= max_usd;
  }
}
