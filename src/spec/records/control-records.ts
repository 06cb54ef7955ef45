// What people ask of a run that is under way, and what it comes to (R21).

/** What may change while a run is under way; the names are the spec's. Absent ones stay as they are. */
export interface Hyperparameters {
  lr?: number;
  eps_clip_low?: number;
  eps_clip_high?: number;
  kl_loss_coef?: number;
  entropy_loss_coef?: number;
  train_batch_size?: number;
  ckpt_interval?: number;
  eval_interval?: number;
  temperature?: number;
  n_samples_per_prompt?: number;
  max_turns?: number;
  max_input_length?: number;
  max_generate_length?: number;
  max_sequence_length?: number;
}

export type ControlChange =
  /** `now`: the step's episodes in flight are cut off. */
  | { kind: 'pause'; now?: true }
  | { kind: 'resume' }
  | { kind: 'stopAfter'; step: number }
  /** The store is to hold a checkpoint of this step, or of one after it. */
  | { kind: 'checkpointNow'; step: number }
  | ({ kind: 'setHyperparameters' } & Hyperparameters)
  /** `also`: what was made from it. */
  | { kind: 'quarantine'; key: string; also?: string[] };

export interface ControlRecord {
  schema: 'longhaul.control/1' | 'longhaul.control/2';
  n: number;
  /** Id of the Temporal Update or signal that asked for it; a known id means done. */
  update_id: string;
  change: ControlChange;
  observed: { at: string };
}

/** All control records folded in order (R21). Of the hyperparameters it holds those that were set. */
export interface ControlState extends Omit<Hyperparameters, 'lr' | 'temperature'> {
  /** Highest record folded in; 0 when none. */
  n: number;
  paused: boolean;
  /** Present while a pause `now` holds. */
  pausedNow?: true;
  stopAfter: number | null;
  /** Step of the last `checkpointNow`. */
  checkpoint?: number;
  lr: number | null;
  temperature: number | null;
}
