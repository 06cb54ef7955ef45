// `longhaul quarantine KEY`: sets an unreadable record aside (R24). Its bytes stay, and the run's readers use KEY.r1 instead.
import { randomUUID } from 'node:crypto';
import type { Command } from 'commander';
import { controlFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { keysSetAsideBy } from '../../store/runs/control-records.js';
import { checkQuarantinable, keysMadeFrom, keysSetAside } from '../../store/runs/quarantine.js';
import { appendSequence, readSequence } from '../../store/records/records.js';
import { readRun } from '../../store/runs/run-records.js';
import { BadKey } from '../../store/record-errors.js';
import { folderOption, openStoreOf, type StoreFlags, storeOption, withOutput, inFolder } from '../output.js';

interface Quarantined {
  run: string;
  key: string;
  control: number;
  /** False if an earlier control record already set the key aside. */
  written: boolean;
  /** Keys of records that were made from this one and so were set aside with it. */
  also: string[];
}

export function register(program: Command): void {
  program
    .command('quarantine')
    .argument('<key>', 'key of the record that cannot be read, as the blocked run names it')
    .description('set an unreadable record aside, so that its run makes it again')
    .addOption(storeOption())
    .addOption(folderOption())
    .option('--run <run>', 'run that makes the record again; needed if the key does not name a run')
    .option('--json', 'print {run, key, control, written, also} as JSON')
    .action(
      withOutput(
        async (key: string, options: StoreFlags & { run?: string; json?: boolean }, command: Command) => {
          const store = await openStoreOf(command, options);
          const done = await quarantine(store, key, options.run);
          console.log(options.json ? JSON.stringify(done) : quarantineText(done, options));
        },
      ),
    );
}

/** Throws `BadKey` for a key that cannot be set aside or does not exist, `UnreadableRecord` if the run does not exist. */
export async function quarantine(store: ObjectStore, key: string, named?: string): Promise<Quarantined> {
  const { folder } = checkQuarantinable(key);
  const run = named ?? /^runs\/([^/]+)\//.exec(key)?.[1];
  if (run === undefined) {
    throw new BadKey(
      `${key} does not belong to one run alone: name the run that makes it again with --run RUN`,
    );
  }
  await readRun(store, run);
  const control = controlFolder(run);
  const records = await readSequence(store, control, 'control');
  const aside = keysSetAside(records);
  const earlier = records.find(({ change }) => keysSetAsideBy(change).includes(key));
  if (earlier) return { run, key, control: earlier.n, written: false, also: [] };
  if (!(await store.head(key))) {
    const replaced = aside.has(key.replace(/\.r[0-9]+$/, '')) ? ' yet' : '';
    throw new BadKey(`${key} is not in ${store.address}${replaced}: there is nothing to set aside`);
  }
  if (await store.head(`${folder}update.json`)) {
    throw new BadKey(
      `${key} cannot be quarantined: its step is committed, so nothing would make it again. ` +
        'Restore it from a copy',
    );
  }
  const also = await keysMadeFrom(store, key, aside);
  const record = await appendSequence(store, control, 'control', (n) => ({
    schema: 'longhaul.control/3',
    n,
    update_id: `quarantine/${randomUUID()}`,
    change: { kind: 'quarantine', key, ...(also.length > 0 ? { also } : {}) },
    observed: { at: new Date().toISOString() },
  }));
  return { run, key, control: record.n, written: true, also };
}

export function quarantineText(
  { run, key, control, written, also }: Quarantined,
  flags: { folder?: string } = {},
): string {
  const base = key.replace(/\.r[0-9]+$/, '');
  const next = `${base}.r${Number(/\.r([0-9]+)$/.exec(key)?.[1] ?? 0) + 1}`;
  const made =
    also.length > 0
      ? [
          `The records made from it are set aside too (${also.length === 1 ? 'a key' : `${also.length} keys`}).`,
        ]
      : [];
  return [
    ...(written
      ? [`${key} is set aside by control record ${control} of ${run}; its bytes are kept.`, ...made]
      : [
          `${key} was set aside before, by control record ${control} of ${run}.`,
          `If its replacement cannot be read either: longhaul quarantine ${next}${inFolder(flags)}`,
        ]),
    `${run} uses ${next} instead, and makes it if it does not exist.`,
    `If the run is blocked, continue with: longhaul resume ${run}${inFolder(flags)}`,
  ].join('\n');
}
