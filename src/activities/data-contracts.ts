// The types that the workflow `prepareDataset` and its activities exchange. All payloads are small: counts and names, never tasks.

/** What the files of a dataset have. */
export interface GatheredDataset {
  /** `NAME@VERSION`. */
  dataset: string;
  /** Tasks that the spec selects. */
  tasks: number;
  /** Those with a solution, which are checked. */
  solved: number;
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
  /** Demonstrations by kind. */
  demonstrations: Record<string, number>;
}

/** Activities of the queue `longhaul`. `spec`: the dataset's spec as JSON. */
export interface DataActivities {
  gatherDataset(input: { spec: unknown }): Promise<GatheredDataset>;
  /** Checks the solutions `from`, `from` + 1, … up to `to` − 1, in the order of the file; those with records are not checked again. */
  gateTasks(input: { spec: unknown; from: number; to: number }): Promise<GatedTasks>;
  finishDataset(input: { spec: unknown }): Promise<PreparedDataset>;
}
