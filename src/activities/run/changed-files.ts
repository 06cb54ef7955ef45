// When a run is started again, its spec may name files that the run has already stored. Such a file may be missing, but must not have
// changed.
import { templateText, tokenizerText } from '../../policy/model-assets.js';
import { isAway, UnreadableFile } from '../../data/data-source.js';
import { lines } from '../../data/dataset-writer.js';
import { readDataFiles, readDemonstrations } from '../../data/run-dataset.js';
import { BadDataFile } from '../../data/task-file.js';
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import { sha256Hex } from '../../base/sha256.js';
import { datasetManifestKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { requireRecord } from '../../store/records/records.js';

interface NamedFile {
  /** Key in the spec. */
  path: string;
  /** Undefined if the spec names no file, which counts as an empty file. */
  file: string | undefined;
  taken: Digest | undefined;
  /** Reads the text that the run would store. */
  read: () => Promise<string>;
}

/** Throws `InvalidSpec`, which names each file that can be read but differs from the copy that the run stored. */
export async function refuseChangedFiles(
  store: ObjectStore,
  record: RunRecord,
  spec: RunSpec,
  signal?: AbortSignal,
): Promise<void> {
  const { model, data } = spec;
  const files: NamedFile[] = [
    {
      path: 'model.tokenizer',
      file: model.tokenizer,
      taken: record.tokenizer,
      read: () => tokenizerText(model),
    },
    {
      path: 'model.chat_template',
      file: model.chat_template,
      taken: record.chat_template,
      read: () => templateText(spec),
    },
  ];
  if (data.source === undefined) {
    const { name, version } = record.dataset;
    const manifest = await requireRecord(store, datasetManifestKey(name, version), 'dataset');
    const taken = (path: string) => manifest.files.find((entry) => entry.path === path)?.sha256;
    const { demonstrations, ...tasks } = data;
    files.push(
      {
        path: 'data.tasks',
        file: data.tasks,
        taken: taken('tasks.jsonl'),
        read: async () => lines((await readDataFiles(tasks, signal)).tasks),
      },
      {
        path: 'data.demonstrations',
        file: demonstrations,
        taken: taken('demonstrations.jsonl'),
        read: async () => lines(await readDemonstrations(demonstrations, signal)),
      },
    );
  }
  const found = await Promise.all(files.map(async (one) => ({ ...one, is: await digestOf(one) })));
  const problems = found.flatMap(({ path, file, taken, is }) => {
    if (is === null || is === taken) return [];
    return {
      path,
      problem: `${file ?? 'no file'} differs from what run "${record.run}" was started with (stored ${taken ?? 'none'}, found ${is})`,
      fix: 'restore the file, or start a run with a new name from the changed file',
    };
  });
  if (problems.length > 0) throw new InvalidSpec(problems);
}

/** Digest of the file's content. Null if the file cannot be read; the run then uses its stored copy. */
async function digestOf({ file, path, read }: NamedFile): Promise<string | null> {
  if (file === undefined) return sha256Hex('');
  try {
    return sha256Hex(await read());
  } catch (error) {
    if (isAway(error) || error instanceof UnreadableFile || path.startsWith('model.')) return null;
    if (error instanceof BadDataFile) return 'unusable';
    throw error;
  }
}
