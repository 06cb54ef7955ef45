// The types that the workflow `prepareDataset` and its activities exchange. All payloads are small: counts and names, never tasks.

/** What the files of a dataset have. */
export interface GatheredDataset {
  /** `NAME@VERSION`. */
  dataset: string;
  /** Tasks that the spec selects. */
  tasks: number;
  /** Those with a given solution. */
  solved: number;
  /** A teacher tries the others. */
  has_teacher: boolean;
}

export interface TaughtTasks {
  solved: number;
  unsolved: number;
  /** By all tries of the preparation so far. */
  spent: { tokens: number; usd: number };
  /** The budget is spent: no further task is tried. */
  exhausted: boolean;
}

export interface GatedTasks {
  passed: number;
  failed: number;
  /** All tasks with a solution, given or taught. */
  solved: number;
}

export interface PreparedDataset {
  dataset: string;
  train_tasks: number;
  held_out_tasks: number;
  /** Tasks left out, by stage. */
  excluded: Record<string, number>;
  /** Demonstrations by kind. */
  demonstrations: Record<string, number>;
}

/** Activities of the queue `longhaul`. `spec`: the dataset's spec as JSON. */
export interface DataActivities {
  gatherDataset(input: { spec: unknown }): Promise<GatheredDataset>;
  /** Lets the teacher try the unsolved tasks `from`, …, `to` − 1, in the order of the file; tries with records are not asked again. */
  teachTasks(input: { spec: unknown; from: number; to: number }): Promise<TaughtTasks>;
  /** Checks the solutions `from`, `from` + 1, … up to `to` − 1, in the order of given, then taught ones; those with records are not checked again. */
  gateTasks(input: { spec: unknown; from: number; to: number }): Promise<GatedTasks>;
  finishDataset(input: { spec: unknown }): Promise<PreparedDataset>;
}
