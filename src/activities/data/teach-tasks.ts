// teachTasks: lets the teacher try tasks that have no solution, one record a try, within the budget. A try that has a record is not asked again.
import { gatheredItems, isSuccess, taskName, triesByTask } from '../../data/solved-tasks.js';
import { teach } from '../../data/teacher/teacher-episode.js';
import type { EnvironmentBackend } from '../../environments/environment.js';
import { parseDatasetSpec, type TeacherSpec } from '../../spec/dataset-spec.js';
import type { GatheredRecord, TaughtRecord } from '../../spec/records/manifests.js';
import type { Task } from '../../spec/records/task.js';
import { gatheredKey, taughtKey } from '../../store/objects/layout.js';
import { recordDigest } from '../../store/records/canonical.js';
import { adoptOrCreate, requireRecord } from '../../store/records/records.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { TaughtTasks } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { type DataScope, playEach } from './played-environments.js';

/** Tries under way when the budget is spent are finished. */
export async function teachTasks(
  { store }: Pick<OrchestratorDeps, 'store'>,
  input: { spec: unknown; from: number; to: number },
  scope: DataScope,
): Promise<TaughtTasks> {
  const spec = parseDatasetSpec(input.spec);
  const { teacher } = spec;
  if (!teacher) return { solved: 0, unsolved: 0, spent: emptySpent(), exhausted: false };
  const gathered = await requireRecord(store, gatheredKey(spec.name, spec.version), 'gathered');
  const { tasks, solutions } = await gatheredItems(store, gathered);
  const given = new Set(solutions.map(({ task_key }) => task_key));
  const unsolved = tasks.filter(({ task_key }) => !given.has(task_key)).slice(input.from, input.to);
  const tries = await triesByTask(store, gathered);
  const budget = new Budget(teacher, [...tries.values()].flat());
  const counts = { solved: 0, unsolved: 0 };
  await playEach(
    spec,
    unsolved.map((task) => ({ task, tries: [...(tries.get(task.task_key) ?? [])] })),
    scope,
    async ({ task, tries: own }, backend) => {
      for (let sample = own.length; sample < teacher.samples && !own.some(isSuccess); sample++) {
        if (budget.isSpent) break;
        own.push(await recordTry({ store }, { gathered, backend, teacher, task, sample, budget }, scope));
      }
      counts[own.some(isSuccess) ? 'solved' : 'unsolved'] += 1;
      scope.progress({ ...counts, ...budget.spent });
    },
  );
  return { ...counts, spent: budget.spent, exhausted: budget.isSpent };
}

interface Try {
  gathered: GatheredRecord;
  backend: EnvironmentBackend;
  teacher: TeacherSpec;
  task: Task;
  sample: number;
  budget: Budget;
}

async function recordTry(
  { store }: Pick<OrchestratorDeps, 'store'>,
  { gathered, backend, teacher, task, sample, budget }: Try,
  scope: DataScope,
): Promise<TaughtRecord> {
  const begun = performance.now();
  const onTokens = (tokens: TaughtRecord['tokens']): void => budget.add(tokens);
  const taught = await teach(backend, teacher, { task, sample, onTokens }, scope.signal);
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

const emptySpent = () => ({ tokens: 0, usd: 0 });

/** Counts what the tries of a preparation have spent. */
class Budget {
  readonly spent = emptySpent();

  constructor(
    private readonly teacher: TeacherSpec,
    earlier: readonly TaughtRecord[],
  ) {
    for (const { tokens } of earlier) this.add(tokens);
  }

  add({ prompt, completion }: TaughtRecord['tokens']): void {
    const { usd_per_million: price = { prompt: 0, completion: 0 } } = this.teacher;
    this.spent.tokens += prompt + completion;
    this.spent.usd += (prompt * price.prompt + completion * price.completion) / 1e6;
  }

  get isSpent(): boolean {
    const { max_tokens = Infinity, max_usd = Infinity } = this.teacher;
    return this.spent.tokens >= max_tokens || this.spent.usd >= max_usd;
  }
}
