// The types that the workflow `prepareDataset` and its activities exchange. All payloads are small: counts and names, never tasks.

/** What was found in the files of a dataset. */
export interface GatheredDataset {
  /** Tasks that the spec selects. */
  tasks: number;
  /** Tasks with a given solution. */
  solved: number;
  /** True if a teacher tries the other tasks. */
  has_teacher: boolean;
}

export interface TeacherSpent {
  tokens: number;
  usd: number;
}

export interface TaughtTasks {
  solved: number;
  /** What all tries so far have spent. */
  spent: TeacherSpent;
  /** True if the budget is spent, so that no further task is tried. */
  exhausted: boolean;
}

export interface GatedTasks {
  passed: number;
  failed: number;
}

export interface PreparedDataset {
  dataset: string;
  train_tasks: number;
  held_out_tasks: number;
  /** Tasks left out, by stage. */
  excluded: Record<string, number>;
  /** Number of tasks that failed a check, by reason: the 12 most frequent reasons. Absent: none. */
  failed?: Record<string, number>;
  /** Demonstrations by kind. */
  demonstrations: Record<string, number>;
  /** Number of tasks that the teacher did not solve, by the result of its tries: the 12 most frequent results. Absent: none. */
  untaught?: Record<string, number>;
  /** What is probably wrong with the dataset; absent: nothing. */
  warnings?: string[];
}

/** Activities of the queue `longhaul`. `spec`: the dataset's spec as JSON. `from`, …, `to` − 1: tasks in the order of the file. */
export interface DataActivities {
  gatherDataset(input: { spec: unknown }): Promise<GatheredDataset>;
  /** Lets the teacher try those of the tasks that have no solution; tries with records are not asked again. */
  teachTasks(input: { spec: unknown; from: number; to: number; spent: TeacherSpent }): Promise<TaughtTasks>;
  /** Checks those of the tasks that have a solution; gates with records are not played again. */
  gateTasks(input: { spec: unknown; from: number; to: number }): Promise<GatedTasks>;
  finishDataset(input: { spec: unknown }): Promise<PreparedDataset>;
}
