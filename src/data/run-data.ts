// A run's fixed inputs: run record, tokenizer, template, dataset. They are read from the store once per process.
import type { Dataset, DatasetCache } from './dataset-cache.js';
import { RecentlyUsed } from '../base/recently-used.js';
import { loadChatTemplate, type ChatTemplate } from '../episode/chat-template.js';
import { recordedToolFormat, type ToolFormat } from '../episode/tool-formats/tool-format.js';
import { loadTokenizer, type Tokenizer } from '../episode/tokenizer.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import { sha256Hex } from '../base/sha256.js';
import { assetKey } from '../store/record-keys.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readRun } from '../store/runs/run-records.js';
import { UnreadableRecord } from '../store/record-errors.js';

export interface RunData extends Dataset {
  record: RunRecord;
  tokenizer: Tokenizer;
  template: ChatTemplate;
  format: ToolFormat;
  eosTokens: readonly number[];
}

/**
 * Number of runs kept, more than one worker serves at once. With a smaller limit, the data of some run would be read again at every step.
 */
const runsKept = 64;

/** The cached data never changes (R1). Runs with the same tokenizer share it. */
export class RunDataCache {
  private readonly runs = new RecentlyUsed<RunData>(runsKept);
  private readonly tokenizers = new RecentlyUsed<Tokenizer>(runsKept);

  constructor(
    private readonly store: ObjectStore,
    private readonly datasets: DatasetCache,
  ) {}

  get(run: string): Promise<RunData> {
    return this.runs.get(run, () => this.load(run));
  }

  private async load(run: string): Promise<RunData> {
    const record = await readRun(this.store, run);
    const [tokenizer, templateText, dataset] = await Promise.all([
      this.tokenizers.get(record.tokenizer, async () =>
        loadTokenizer(await readAsset(this.store, record.tokenizer)),
      ),
      readAsset(this.store, record.chat_template),
      this.datasets.load(record.dataset),
    ]);
    return {
      ...{ record, tokenizer, template: loadChatTemplate(templateText, tokenizer) },
      ...{ format: recordedToolFormat(record.tool_parser), eosTokens: record.eos_tokens ?? [] },
      ...dataset,
    };
  }
}

/** Reads the text of a tokenizer or chat template that a run record names. Throws `UnreadableRecord`. */
export async function readAsset(store: ObjectStore, digest: Digest): Promise<string> {
  const key = assetKey(digest);
  const bytes = await store.get(key);
  if (bytes === null) throw new UnreadableRecord(key, 'it is not in the store');
  if (sha256Hex(bytes) !== digest) throw new UnreadableRecord(key, 'its bytes do not match its name');
  return Buffer.from(bytes).toString('utf8');
}
