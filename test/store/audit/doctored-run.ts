// A real run's records, made once for a test file, and copies of its store with one thing broken at a time.
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import type { Violation } from '../../../src/store/audit/chain-audit.js';
import * as layout from '../../../src/store/objects/layout.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import type { RecordKind, RecordTypes } from '../../../src/spec/records/record-kinds.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { startStack } from '../../../src/stack/stack.js';
import { findEngine } from '../../support/find-tools.js';
import { smallRun } from '../../support/small-run.js';
import { unfold } from '../../support/unfolded.js';
import { builtScripts } from '../../support/repository.js';

export const run = 'audited';
export const home = { project: 'longhaul', model: 'tiny', run };
const folder = mkdtempSync(join(tmpdir(), 'longhaul-audit-'));
export const original = join(folder, 'stack', 'store');
/** The same run as its own collections left it. */
export const collected = join(folder, 'collected');

/** Known once the run is recorded. */
export const audited = {
  /** The last step: its group 0 has both outcomes. */
  last: 0,
  /** Evaluation of its state. */
  evaluation: { state: '', suite: '' },
};

export async function recordRun(): Promise<void> {
  const failures: Error[] = [];
  // Another file of this process has removed its own.
  mkdirSync(folder, { recursive: true });
  const stack = await startStack({
    folder: join(folder, 'stack'),
    engine: findEngine(),
    temporalPort: null,
    log: () => undefined,
    gaveUp: (error) => failures.push(error),
    scripts: builtScripts,
  });
  const connection = Connection.lazy({ address: stack.addresses.temporal });
  try {
    // All of its checkpoints stay, to be broken.
    const retention = { keep_last: 1000, keep_every: 0, keep_best: 0 };
    const spec = { ...(await smallRun(join(folder, 'data'))).named(run), retention };
    const handle = await new Client({ connection }).workflow.start('trainingRun', {
      taskQueue: 'longhaul',
      workflowId: `train/${run}`,
      args: [spec],
    });
    const result = (await handle.result()) as { step: number; state: string };
    cpSync(original, collected, { recursive: true, preserveTimestamps: true });
    const store = await openStore(`dir:${original}`);
    await unfold(store, original, run);
    const [suite] = await store.listFolder(layout.evaluationsOfState(result.state));
    audited.last = result.step;
    audited.evaluation = { state: result.state, suite: (suite ?? '').replace('/', '') };
    if (failures[0]) throw failures[0];
  } finally {
    await connection.close();
    await stack.stop();
  }
}

export function forgetRun(): void {
  rmSync(folder, { recursive: true, force: true });
}

/** A copy of the run's store with ways to break it; times in the store are kept. */
export class Doctored {
  readonly path = mkdtempSync(join(folder, 'copy-'));
  private constructor(public store: ObjectStore) {}

  static async copy(): Promise<Doctored> {
    const copy = new Doctored(null as unknown as ObjectStore);
    cpSync(original, copy.path, { recursive: true, preserveTimestamps: true });
    copy.store = await openStore(`dir:${copy.path}`);
    return copy;
  }

  bytes(key: string): Buffer {
    return readFileSync(join(this.path, key));
  }

  write(key: string, bytes: Uint8Array | string): void {
    mkdirSync(dirname(join(this.path, key)), { recursive: true });
    writeFileSync(join(this.path, key), bytes);
  }

  remove(key: string): void {
    rmSync(join(this.path, key), { recursive: true });
  }

  move(key: string, to: string): void {
    mkdirSync(dirname(join(this.path, to)), { recursive: true });
    renameSync(join(this.path, key), join(this.path, to));
  }

  /** Every object below a folder is as new as if it had just been written. */
  touch(folder: string): void {
    const now = new Date();
    for (const name of readdirSync(join(this.path, folder), { recursive: true, encoding: 'utf8' }))
      utimesSync(join(this.path, folder, name), now, now);
  }

  /** An object is as old as that. */
  date(key: string, modified: Date): void {
    utimesSync(join(this.path, key), modified, modified);
  }

  async put<Kind extends RecordKind>(key: string, kind: Kind, record: RecordTypes[Kind]): Promise<void> {
    this.write(key, await encodeRecord(kind, record));
  }

  async edit<Kind extends RecordKind>(
    key: string,
    kind: Kind,
    change: (record: RecordTypes[Kind]) => void,
  ): Promise<void> {
    const record = await requireRecord(this.store, key, kind);
    change(record);
    await this.put(key, kind, record);
  }

  async violations(of = run): Promise<Violation[]> {
    return (await auditRun(await openStore(`dir:${this.path}`), of)).violations;
  }
}

export interface Doctoring {
  what: string;
  rule: Violation['rule'];
  /** Where the violation must be found. */
  at: () => string;
  /** What the violation must name besides. */
  names?: string;
  doctor: (store: Doctored) => Promise<void> | void;
}

/** The violation is found where a record was edited. */
export const edited = <Kind extends RecordKind>(
  at: string | (() => string),
  kind: Kind,
  change: (record: RecordTypes[Kind]) => void,
): Pick<Doctoring, 'at' | 'doctor'> => {
  const key = typeof at === 'string' ? () => at : at;
  return { at: key, doctor: (store) => store.edit(key(), kind, change) };
};

export const episode = (step: number, sample = 0): string => layout.episodeKey(run, step, 0, sample);
export const update = (step: number): string => layout.updateKey(run, step);
export const plan = (step: number): string => layout.planKey(run, step);
export const control = (n: number): string => layout.sequenceKey(layout.controlFolder(run), n);
export const suiteKey = (): string =>
  layout.evaluationSuiteKey(audited.evaluation.state, audited.evaluation.suite);
export const evalEpisode = (slot = 0): string =>
  layout.evaluationEpisodeKey(audited.evaluation.state, audited.evaluation.suite, slot, 0);
export const evalResult = (): string =>
  layout.evaluationResultKey(audited.evaluation.state, audited.evaluation.suite);

/** One of the two supervised steps, and a GRPO step in which a group has both outcomes. */
export const [supervised, learned] = [1, 2];
export const otherDigest = '0'.repeat(64);
