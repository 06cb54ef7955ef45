// Collects the findings of an audit. An unreadable record is a violation like any other: the audit continues.
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord } from '../records/records.js';
import { isDamage } from '../record-errors.js';
import type { RecordKind, RecordTypes } from '../../spec/records/record-kinds.js';

/** Rules that an audit checks: see docs/rules.md. */
export type Rule =
  | 'R1'
  | 'R2'
  | 'R5'
  | 'R7'
  | 'R8'
  | 'R9'
  | 'R10'
  | 'R11'
  | 'R12'
  | 'R13'
  | 'R17'
  | 'R18'
  | 'R20'
  | 'R21'
  | 'R23'
  | 'R25'
  | 'R31'
  | 'R32'
  | 'R34';

export interface Violation {
  rule: Rule;
  key: string;
  problem: string;
}

export interface ChainAudit {
  run: string;
  /** Number of committed steps, base included. */
  steps: number;
  updatesApplied: number;
  /** Number of episodes of training steps. */
  episodes: number;
  /** Number of graded outcomes that are 0; `unknown` counts the unknown ones. Chaos runs compare both with the run without faults. */
  zeros: number;
  unknown: number;
  evaluations: number;
  checkpoints: number;
  /** What collections deleted from the run. No state is lost: a state with a deleted checkpoint is computed from an older checkpoint. */
  collected: Collected;
  /** Steps that were sampled again. */
  resampled: ResampledStep[];
  finalState: Digest | null;
  violations: Violation[];
  /** Facts that no record proves, in words: the audit would not notice if they were forged. */
  notClaimed: string[];
}

interface ResampledStep {
  step: number;
  control: number;
  /** Number of finished episodes that the record set aside. */
  episodes: number;
}

interface Collected {
  records: number;
  /** Steps whose checkpoint a collection record names, if the checkpoint is deleted. */
  checkpoints: number[];
  /** Steps with a manifest but no data: a late uploader left the manifest, and the next collection deletes it. */
  manifests: number[];
  /** Steps with all episodes folded into one file. */
  folded: number;
}

export class AuditReport implements ChainAudit {
  steps = 0;
  updatesApplied = 0;
  episodes = 0;
  zeros = 0;
  unknown = 0;
  evaluations = 0;
  checkpoints = 0;
  collected: Collected = { records: 0, checkpoints: [], manifests: [], folded: 0 };
  readonly resampled: ResampledStep[] = [];
  finalState: Digest | null = null;
  readonly violations: Violation[] = [];
  readonly notClaimed: string[] = [];

  constructor(
    readonly run: string,
    private readonly onProgress?: (place: string) => void,
  ) {}

  /** Reports progress: the place that the audit has reached. */
  at(place: string): void {
    this.onProgress?.(place);
  }

  add(rule: Rule, key: string, problem: string): void {
    this.violations.push({ rule, key, problem });
  }

  episode({ outcome }: EpisodeRecord): void {
    this.episodes += 1;
    if (outcome.status === 'unknown') this.unknown += 1;
    else if (outcome.value === 0) this.zeros += 1;
  }

  /** Reads a record. Null if it is missing; null and a violation if it cannot be read. */
  async read<Kind extends RecordKind>(
    store: ObjectStore,
    key: string,
    kind: Kind,
  ): Promise<RecordTypes[Kind] | null> {
    return readable(this, key, () => readRecord(store, key, kind));
  }

  done(): ChainAudit {
    return { ...this };
  }
}

/** The result of `read`; null and a violation if it fails because stored content is damaged. */
export async function readable<T>(
  report: AuditReport,
  key: string,
  read: () => T | Promise<T>,
): Promise<T | null> {
  try {
    return await read();
  } catch (error) {
    if (!isDamage(error)) throw error;
    report.add('R1', key, error.message);
    return null;
  }
}
