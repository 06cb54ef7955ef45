// `longhaul show KEY`: prints any object of the store as readable text.
import type { Command } from 'commander';
import { folderOption, openStoreOf, printable, type StoreFlags, storeOption, withOutput } from '../output.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { decodeBatchFile } from '../../store/files/batch-file.js';
import { recordDigest } from '../../store/records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import { readFolded } from '../../store/runs/folded-episodes.js';
import { foldedEpisodesKey, parseEpisodeKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { checkRecord, decompress, schemaOf } from '../../store/records/record-codec.js';
import { type RecordKind, recordSchemas } from '../../spec/records/record-kinds.js';
import { decodeSafetensorsHeader, safetensorsHeaderLength } from '../../store/files/safetensors.js';
import { UnreadableRecord } from '../../store/record-errors.js';

export function register(program: Command): void {
  program
    .command('show')
    .argument('<key>', 'key in the store, e.g. runs/quickstart/steps/000001/update.json')
    .description('print a record, batch or checkpoint file of the store in readable form, or list a folder')
    .addOption(storeOption())
    .addOption(folderOption())
    .option('--json', 'print {key, text} as JSON')
    .action(
      withOutput(async (key: string, options: StoreFlags & { json?: boolean }, command: Command) => {
        const text = await showRecord(await openStoreOf(command, options), key);
        console.log(options.json ? JSON.stringify({ key, text }) : printable(text));
      }),
    );
}

const textLimit = 200_000;
const longList = 12;

/**
 * Readable text of the object at `key`. Throws `UnreadableRecord`, `OlderSchema` or `NewerSchema`; for a missing key, an error that lists
 * nearby keys.
 */
export async function showRecord(store: ObjectStore, key: string): Promise<string> {
  const plain = key.replace(/\.r[1-9][0-9]*$/, '');
  if (plain.endsWith('.safetensors') && !plain.endsWith('/batch.safetensors')) return showTensors(store, key);
  const folder = key === '' || key.endsWith('/') ? key : `${key}/`;
  const bytes = key === folder ? null : await store.get(key);
  if (bytes === null && (await store.listFolder(folder)).length > 0) return showFolder(store, folder);
  if (bytes === null) {
    const folded = await showFolded(store, folder.slice(0, -1));
    if (folded !== null) return folded;
  }
  if (bytes === null && plain.endsWith('/batch.safetensors')) {
    const compressed = await store.get(`${key}.gz`);
    if (compressed) return showBatch(await decompress(`${key}.gz`, compressed), key);
  }
  if (bytes === null) throw new Error(`there is no ${key} in ${store.address}${await nearby(store, key)}`);
  if (plain.endsWith('/batch.safetensors')) return showBatch(bytes, key);
  if (plain.endsWith('/batch.safetensors.gz')) return showBatch(await decompress(key, bytes), key);
  if (plain.endsWith('/episodes.jsonl.gz')) {
    const folded = await showFolded(store, plain.replace(/\.jsonl\.gz$/, ''));
    if (folded !== null) return folded;
  }
  const text = new TextDecoder().decode(plain.endsWith('.gz') ? await decompress(key, bytes) : bytes);
  if (!/\.json(\.gz)?$/.test(plain)) return cut(text);
  return showJson(key, text);
}

async function showFolder(store: ObjectStore, folder: string): Promise<string> {
  const names = await store.listFolder(folder);
  return `${folder}\n${names.map((name) => `  ${name}\n`).join('')}`;
}

/** Shows one episode of a folded step or, for the key of the episodes' folder, a list of them; null if the step is not folded. */
async function showFolded(store: ObjectStore, key: string): Promise<string | null> {
  const place = parseEpisodeKey(key);
  const folded = place && (await readFolded(store, place));
  if (!folded) return null;
  const file = foldedEpisodesKey(place.run, place.step);
  const one = folded.get(key);
  if (one) {
    const head = `${key}\n${one.record.schema}  digest ${recordDigest(one.record)}  in ${file}\n\n`;
    return head + showEpisode(one.record);
  }
  if (!key.endsWith('/episodes')) return null;
  const lines = [...folded].map(([name, { record }]) => `  ${name}  ${resultOf(record)}\n`);
  return `${file}\n${folded.size} episodes\n\n${lines.join('')}`;
}

function showJson(key: string, text: string): string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new UnreadableRecord(
      key,
      `it is not JSON (${(error as Error).message}): ${JSON.stringify(text.slice(0, 200))}`,
    );
  }
  const schema = schemaOf(value);
  if (schema === null || !Object.hasOwn(recordSchemas, schema.kind)) return cut(pretty(value));
  const kind = schema.kind as RecordKind;
  const record = checkRecord(key, kind, value);
  const head = `${key}\n${schema.text}  digest ${recordDigest(record)}\n\n`;
  if (kind === 'episode') return head + showEpisode(record as EpisodeRecord);
  return head + cut(pretty(record));
}

function showEpisode(record: EpisodeRecord): string {
  const { tokens, prompt_length, turns, metrics, observed } = record;
  const failures = Object.entries(observed.failures).map(([reason, count]) => `${reason} × ${count}`);
  return [
    `task        ${record.task_key} (${record.env_key})`,
    `rollout     slot ${record.slot}, sample ${record.sample}`,
    `outcome     ${resultOf(record)}; ended by ${record.stop_reason}`,
    ...(observed.failure === undefined ? [] : [`failure     ${observed.failure}`]),
    ...(observed.explanation === undefined ? [] : [`grader      ${observed.explanation}`]),
    `plan        ${record.plan}`,
    `state       ${record.state}`,
    `tokens      ${tokens.length}: ${prompt_length} of the prompt, ${record.logprobs.length} sampled in ${turns.length} turns`,
    `tool calls  ${metrics.tool_calls}, ${metrics.tool_errors} of them errors`,
    `played      ${observed.started_at}, ${observed.seconds.toFixed(1)} s, attempt ${observed.attempt}` +
      (failures.length > 0 ? `; failures: ${failures.join(', ')}` : ''),
    '',
    'turn  policy step  tokens            mean log-prob  tool',
    ...turnLines(record),
    '',
  ].join('\n');
}

function resultOf({ outcome }: EpisodeRecord): string {
  return outcome.status === 'graded'
    ? `graded ${outcome.value}`
    : `unknown (${outcome.reason}; ${outcome.failures} charged failures)`;
}

function turnLines({ turns, logprobs }: EpisodeRecord): string[] {
  let position = 0;
  return turns.map(({ policy_step, start, end, tool, error }, i) => {
    const own = logprobs.slice(position, position + end - start);
    position += end - start;
    const mean = own.length > 0 ? (own.reduce((sum, value) => sum + value, 0) / own.length).toFixed(4) : '–';
    const columns = [
      String(i + 1).padStart(4),
      String(policy_step).padStart(11),
      `[${start}, ${end})`.padEnd(16),
      mean.padStart(13),
      `${tool ?? '–'}${error ? ' (error)' : ''}`,
    ];
    return columns.join('  ');
  });
}

function showBatch(bytes: Uint8Array, key: string): string {
  const { identity, arrays } = decodeBatchFile(bytes, key);
  const nodes = arrays.nodes.length / 3;
  let roots = 0;
  for (let i = 0; i < nodes; i++) if (arrays.nodes[3 * i] === -1) roots++;
  return [
    key,
    `${identity.schema}  sha256 ${sha256Hex(bytes)}, ${bytes.length} bytes`,
    '',
    `step            ${identity.step} of ${identity.run}`,
    `plan            ${identity.plan}`,
    `previous state  ${identity.previous_state}`,
    `inputs          ${identity.inputs}`,
    `nodes           ${nodes} in ${roots} ${roots === 1 ? 'tree' : 'trees'}, ${arrays.tokens.length} tokens`,
    `targets         ${arrays.target_rows.length}: ${identity.loss_tokens.join(' + ')} by mini-batch`,
    `advantages      ${range(arrays.target_advantages)}`,
    ...(arrays.target_old_logprobs ? [`old log-probs   ${range(arrays.target_old_logprobs)}`] : []),
    ...(arrays.target_rollout_logprobs ? [`at sampling     ${range(arrays.target_rollout_logprobs)}`] : []),
    '',
  ].join('\n');
}

/** Shows the header of a safetensors file. Its data may be gigabytes, so it is not read. */
async function showTensors(store: ObjectStore, key: string): Promise<string> {
  const info = await store.head(key);
  const pieces = info && (await store.stream(key));
  if (!info || !pieces) throw new Error(`there is no ${key} in ${store.address}${await nearby(store, key)}`);
  let bytes = Buffer.alloc(0);
  for await (const piece of pieces) {
    bytes = Buffer.concat([bytes, piece]);
    if (bytes.length >= 8 && bytes.length >= 8 + safetensorsHeaderLength(bytes, info.size, key)) break;
  }
  const { metadata, entries } = decodeSafetensorsHeader(bytes, info.size, key);
  return [
    key,
    `safetensors, ${info.size} bytes, ${Object.keys(entries).length} tensors`,
    '',
    ...Object.entries(metadata).map(([name, value]) => `${name} = ${value}`),
    '',
    ...Object.entries(entries).map(([name, { dtype, shape }]) => `${dtype} [${shape.join(', ')}]  ${name}`),
    '',
  ].join('\n');
}

async function nearby(store: ObjectStore, key: string): Promise<string> {
  const folder = key.slice(0, key.lastIndexOf('/') + 1);
  const names = await store.listFolder(folder);
  if (names.length === 0) return '';
  return `; ${folder || 'the store'} has ${names.slice(0, longList).join(', ')}${names.length > longList ? ', …' : ''}`;
}

/** Indented JSON. A list of numbers stays on one line, and a long list is cut. */
function pretty(value: unknown, indent = ''): string {
  if (Array.isArray(value)) {
    if (value.every((item) => typeof item !== 'object' || item === null)) {
      const shown = value.slice(0, longList).map((item) => JSON.stringify(item));
      return `[${shown.join(', ')}${value.length > longList ? `, … ${value.length} in all` : ''}]`;
    }
    const items = value.map((item) => `${indent}  ${pretty(item, `${indent}  `)}`);
    return `[\n${items.join(',\n')}\n${indent}]`;
  }
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(
      ([name, member]) => `${indent}  ${JSON.stringify(name)}: ${pretty(member, `${indent}  `)}`,
    );
    return members.length > 0 ? `{\n${members.join(',\n')}\n${indent}}` : '{}';
  }
  return JSON.stringify(value);
}

function range(values: Float32Array): string {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  return values.length > 0 ? `${least.toPrecision(5)} … ${most.toPrecision(5)}` : 'none';
}

function cut(text: string): string {
  if (text.length <= textLimit) return text.endsWith('\n') ? text : `${text}\n`;
  return `${text.slice(0, textLimit)}\n… ${text.length - textLimit} more characters\n`;
}
