// A run's fixed inputs, read from the store once per process: run record, tokenizer, template, dataset.
import type { Dataset, DatasetCache } from './dataset-cache.js';
import { loadChatTemplate, type ChatTemplate } from '../episode/chat-template.js';
import { loadTokenizer, type Tokenizer } from '../episode/tokenizer.js';
import type { Digest, RunRecord } from '../spec/records.js';
import { sha256Hex } from '../store/canonical.js';
import { assetKey } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { readRun } from '../store/run-records.js';
import { UnreadableRecord } from '../store/store-errors.js';

export interface RunData extends Dataset {
  record: RunRecord;
  tokenizer: Tokenizer;
  template: ChatTemplate;
}

/** Keeps the last few runs; what it holds never changes (R1). */
export class RunDataCache {
  readonly #runs = new Map<string, Promise<RunData>>();

  constructor(
    private readonly store: ObjectStore,
    private readonly datasets: DatasetCache,
    private readonly capacity = 4,
  ) {}

  get(run: string): Promise<RunData> {
    const held = this.#runs.get(run);
    if (held) return held;
    const loading = this.#load(run);
    this.#runs.set(run, loading);
    loading.catch(() => this.#runs.delete(run));
    const oldest = this.#runs.keys().next().value;
    if (this.#runs.size > this.capacity && oldest !== undefined) this.#runs.delete(oldest);
    return loading;
  }

  async #load(run: string): Promise<RunData> {
    const record = await readRun(this.store, run);
    const [tokenizerText, templateText, dataset] = await Promise.all([
      this.#asset(record.tokenizer),
      this.#asset(record.chat_template),
      this.datasets.load(record.dataset),
    ]);
    const tokenizer = loadTokenizer(tokenizerText);
    return { record, tokenizer, template: loadChatTemplate(templateText, tokenizer), ...dataset };
  }

  async #asset(digest: Digest): Promise<string> {
    const key = assetKey(digest);
    const bytes = await this.store.get(key);
    if (bytes === null) throw new UnreadableRecord(key, 'it is not in the store');
    if (sha256Hex(bytes) !== digest) throw new UnreadableRecord(key, 'its bytes do not match its name');
    return Buffer.from(bytes).toString('utf8');
  }
}
