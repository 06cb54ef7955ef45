// Records a real run once for each test file, and makes copies of its store in which a test breaks one thing at a time.
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
import * as layout from '../../../src/store/record-keys.js';
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
/** Store of the same run with its episodes and batches folded, as its collections left them. */
export const collected = join(folder, 'collected');

/** Facts about the run, filled in by `recordRun`. */
export const audited = {
  /** The last step; its group 0 has both outcomes, passed and failed. */
  last: 0,
  /** Evaluation of the last step's state. */
  evaluation: { state: '', suite: '' },
};

export async function recordRun(): Promise<void> {
  const failures: Error[] = [];
  // An earlier test file in this process may have removed the folder.
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
    // Keep all checkpoints, so that tests can break them.
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

/** A copy of the run's store, with its objects' times, and methods that break it. */
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

  /** Sets the time of all objects below a folder to now, as if they had just been written. */
  touch(folder: string): void {
    const now = new Date();
    for (const name of readdirSync(join(this.path, folder), { recursive: true, encoding: 'utf8' }))
      utimesSync(join(this.path, folder, name), now, now);
  }

  /** Sets an object's time. */
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
  /** Text that the violation's key must contain. */
  at: () => string;
  /** Text that the violation's problem must contain. */
  names?: string;
  doctor: (store: Doctored) => Promise<void> | void;
}

/** A doctoring that edits one record; the audit must report a violation at its key. */
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

/** `supervised`: one of the two supervised steps; `learned`: a GRPO step with both outcomes in one group. */
export const [supervised, learned] = [1, 2];
export const otherDigest = '0'.repeat(64);
