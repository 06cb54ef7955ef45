// The findings of an audit so far. An unreadable record is a violation like any other: the audit goes on.
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord } from '../records/records.js';
import type { RecordKind, RecordTypes } from '../../spec/records/record-kinds.js';

/** Rules of the records; docs/rules.md says what each is. */
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
  | 'R31';

export interface Violation {
  rule: Rule;
  key: string;
  problem: string;
}

export interface ChainAudit {
  run: string;
  /** Committed steps, base included. */
  steps: number;
  updatesApplied: number;
  /** Number of episodes in training steps. */
  episodes: number;
  /** Graded outcomes that are 0, and unknown ones, for the count of false zeros elsewhere. */
  zeros: number;
  unknown: number;
  evaluations: number;
  checkpoints: number;
  /** What collections took of the run itself: states after `checkpoints` are computed from older ones; none was lost. */
  collected: Collected;
  finalState: Digest | null;
  violations: Violation[];
  /** What no record proves, in words: a forgery there would not be found. */
  notClaimed: string[];
}

interface Collected {
  /** Records of collections. */
  records: number;
  /** Steps with checkpoints that a record names, and that are gone. */
  checkpoints: number[];
  /** Steps with a manifest without data, left by a late uploader; the next collection takes it. */
  manifests: number[];
  /** Steps with all episodes in one file. */
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
  finalState: Digest | null = null;
  readonly violations: Violation[] = [];
  readonly notClaimed: string[] = [];

  /** Private: not part of the report. */
  private readonly onProgress: ((place: string) => void) | undefined;

  constructor(
    readonly run: string,
    onProgress?: (place: string) => void,
  ) {
    this.onProgress = onProgress;
  }

  /** Reports where the audit is. */
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

  /** Null if it is missing, or cannot be read, which is a violation. */
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

/** Null, and a violation, if `read` fails because of what is in the store. */
export async function readable<T>(
  report: AuditReport,
  key: string,
  read: () => T | Promise<T>,
): Promise<T | null> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof Error) || !dataErrors.includes(error.name)) throw error;
    report.add('R1', key, error.message);
    return null;
  }
}

const dataErrors = [
  'UnreadableRecord',
  'OlderSchema',
  'NewerSchema',
  'CorruptCheckpoint',
  'BadKey',
  'BadTensorFile',
];
