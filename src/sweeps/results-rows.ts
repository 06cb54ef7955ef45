// `aggregated_results.jsonl`: one line for each state and suite, with SkyRL's names. It depends only on the episodes, so a sweep that was
// killed and resumed writes the same bytes.
import { rewardFigures } from '../rl/metrics.js';
import { canonicalText } from '../store/records/canonical.js';
import {
  allEnvironments,
  type PlayedState,
  type StateComparison,
  type SuiteComparison,
} from './comparison.js';
import { playedSamples, type TaskTally } from './tallies.js';

export type ResultRow = Record<string, string | number>;

/**
 * The row of one state: `eval/{env}/…` and `eval/all/…`. SkyRL's names keep SkyRL's meaning: `pass_at_n` is the share of tasks with any
 * reward above 0, whereas `pass_at_1` and `pass_at_{k}` count only full rewards.
 */
export function resultRow(
  { label, suite }: Pick<SuiteComparison, 'label' | 'suite'>,
  played: PlayedState,
  { all, environments }: Pick<StateComparison, 'all' | 'environments'>,
): ResultRow {
  const row: ResultRow = {
    run: played.run,
    global_step: played.step,
    state: played.state,
    suite,
    suite_name: label,
    'eval/num_samples': all.graded,
  };
  const scopes = Object.entries(environments).map(([name, figures]) => ({
    name,
    figures,
    tasks: played.tasks.filter(({ env_key }) => env_key === name),
  }));
  // Last, so that an environment named "all" cannot replace this scope.
  scopes.push({ name: allEnvironments, figures: all, tasks: [...played.tasks] });
  for (const { name, figures, tasks } of scopes) {
    const add = (key: string, value: number | null): void => {
      if (value !== null) row[`eval/${name}/${key}`] = value;
    };
    add('pass_at_1', figures.pass_at_1);
    for (const { k, value } of figures.pass_at_k) add(`pass_at_${k}`, value);
    const rewards = rewardFigures(tasks.map(groupOf));
    add('pass_at_n', rewards.pass_at_n);
    add('variance_per_prompt', rewards.variance_per_prompt);
    add('signal_ratio', rewards.signal_ratio);
    add('mean_positive_reward', rewards.mean_positive_reward);
    add('unknown', figures.unknown);
    add('avg_turns', figures.mean_turns);
    add('avg_tool_calls', figures.mean_tool_calls);
    add('total_tool_errors', figures.tool_errors);
    add('tool_error_rate', figures.tool_error_rate);
  }
  return row;
}

/** The file's text: rows in the given order, one JSON object per line. */
export function resultsFile(rows: readonly ResultRow[]): string {
  return rows.map((row) => `${canonicalText(row)}\n`).join('');
}

function groupOf(task: TaskTally): { env: string; values: (number | null)[] } {
  return { env: task.env_key, values: playedSamples(task).map(({ reward }) => reward) };
}
