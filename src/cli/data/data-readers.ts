// `longhaul data show | diff | export`: read prepared datasets from the store.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Command } from 'commander';
import {
  datasetParts,
  preparedDatasets,
  readDatasetFile,
  readDatasetItems,
  requirePrepared,
} from '../../data/prepared-dataset.js';
import { untaughtReasons } from '../../data/preparation/solved-tasks.js';
import type { Exclusion } from '../../data/task-selection.js';
import { requireNewFolder } from '../../policy/model-export.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import type { GatheredRecord } from '../../spec/records/preparation-records.js';
import type { Task } from '../../spec/records/task.js';
import { gatheredKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readRecord } from '../../store/records/records.js';
import { folderOption, openStoreOf, printable, type StoreFlags, storeOption, withOutput } from '../output.js';
import { type AttemptsPlace, attemptsWithout, attemptText, lastAttempt } from './preparation-attempts.js';
import { type DatasetContents, diffOf, diffText, listText, showText } from './dataset-text.js';

interface ReaderFlags extends StoreFlags {
  temporalAddress?: string;
  namespace?: string;
  json?: boolean;
}

export function addReaders(data: Command): void {
  const reader = (usage: string, description: string): Command =>
    data
      .command(usage)
      .description(description)
      .addOption(storeOption())
      .addOption(folderOption())
      .option('--json', 'print the result as JSON');

  reader(
    'show [name@version]',
    'show what is in a dataset and what was left out, or why its preparation failed; without a name, list the datasets',
  )
    .option('--temporal-address <host:port>', 'Temporal server to ask about preparations that failed')
    .option('--namespace <name>', 'Temporal namespace')
    .action(
      withOutput(async (id: string | undefined, flags: ReaderFlags, command: Command) => {
        const store = await openStoreOf(command, flags);
        const place = attemptsPlace(command, flags, store);
        if (id === undefined) {
          const prepared = await preparedDatasets(store);
          const manifests = await Promise.all(
            prepared.map((one) => requirePrepared(store, one, '', 'the store')),
          );
          if (flags.json) return console.log(JSON.stringify(manifests));
          const attempts = await attemptsWithout(place, new Set(prepared));
          console.log(
            [listText(manifests), ...attempts.map((one) => printable(attemptText(one)))].join('\n'),
          );
          return;
        }
        const contents = await contentsOf(store, id).catch(async (error: unknown) => {
          const attempt = error instanceof InvalidSpec ? await lastAttempt(place, id) : null;
          throw attempt ? new Error(`${(error as Error).message}\n${attemptText(attempt)}`) : error;
        });
        const { manifest, gathered, excluded } = contents;
        const untaught = gathered === null ? {} : await untaughtReasons(store, gathered);
        console.log(
          flags.json
            ? JSON.stringify({ manifest, gathered, excluded, untaught })
            : printable(showText({ ...contents, untaught })),
        );
      }),
    );

  reader('diff <name@version> <name@version>', 'compare two datasets task by task').action(
    withOutput(async (one: string, other: string, flags: ReaderFlags, command: Command) => {
      const store = await openStoreOf(command, flags);
      const [before, after] = [await contentsOf(store, one), await contentsOf(store, other)];
      const diff = diffOf(before.tasks, after.tasks);
      console.log(flags.json ? JSON.stringify(diff) : printable(diffText(one, other, diff)));
    }),
  );

  reader('export <name@version>', 'write a dataset’s files into a folder')
    .requiredOption('--to <dir>', 'folder to write; must not exist yet')
    .action(
      withOutput(async (id: string, flags: ReaderFlags & { to: string }, command: Command) => {
        const store = await openStoreOf(command, flags);
        const manifest = await requirePrepared(store, id, '', 'the store');
        await requireNewFolder(flags.to);
        await mkdir(flags.to, { recursive: true });
        for (const { path } of manifest.files)
          await writeFile(join(flags.to, path), await readDatasetFile(store, manifest, path));
        await writeFile(join(flags.to, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`);
        const paths = [...manifest.files.map(({ path }) => path), 'manifest.json'];
        console.log(
          flags.json
            ? JSON.stringify({ dataset: id, to: flags.to, files: paths })
            : `${id} is in ${flags.to}: ${paths.join(', ')}`,
        );
      }),
    );
}

function attemptsPlace(command: Command, flags: ReaderFlags, { address }: ObjectStore): AttemptsPlace {
  const isNamed = (option: string): boolean => command.getOptionValueSource(option) !== 'default';
  const { temporalAddress, namespace } = flags;
  return {
    flags: {
      ...(isNamed('folder') ? { folder: flags.folder } : {}),
      ...(temporalAddress === undefined ? {} : { temporalAddress }),
      ...(namespace === undefined ? {} : { namespace }),
    },
    namedStore: isNamed('store') ? address : null,
  };
}

async function contentsOf(store: ObjectStore, id: string): Promise<Omit<DatasetContents, 'untaught'>> {
  const manifest = await requirePrepared(store, id, '', 'the store');
  const { name, version } = datasetParts(id);
  const gathered: GatheredRecord | null = await readRecord(store, gatheredKey(name, version), 'gathered');
  return {
    manifest,
    gathered,
    tasks: await readDatasetItems<Task>(store, manifest, 'tasks.jsonl'),
    excluded: manifest.prepared ? await readDatasetItems<Exclusion>(store, manifest, 'excluded.jsonl') : [],
  };
}
