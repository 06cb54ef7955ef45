// Writes a model's weights as one safetensors file: those of its language model only, with an adapter added to them.
import { type FileHandle, open } from 'node:fs/promises';
import { BadModelFolder } from './hf-config.js';
import type { LoraPair } from './peft-adapter.js';
import { bytesOf, floatsOf, type StoredTensor } from './tensor-file.js';

interface Written {
  tensor: StoredTensor;
  pair: LoraPair | null;
}

export interface WriteProgress {
  signal?: AbortSignal | undefined;
  onProgress?: ((bytes: number) => void) | undefined;
}

/** Number of multiplications between two pauses; the process can do other work only in a pause. */
const workAtOnce = 2e7;
const bytesAtOnce = 1 << 23;

/**
 * The name of a multimodal model's tensor in its language model alone; null if the tensor is not a part of the language model. Older
 * versions of transformers put `language_model` first, newer ones `model`.
 */
export function languageTensor(name: string): string | null {
  const inner = /^(?:model\.)?(?:language_model\.)?(?:model\.)?((?:layers|embed_tokens|norm)\..+)$/.exec(
    name,
  );
  if (inner) return `model.${inner[1]}`;
  const head = /^(?:language_model\.)?(lm_head\..+)$/.exec(name);
  return head ? (head[1] as string) : null;
}

/**
 * Writes the tensors under their names in the map. A tensor with a pair is written as fp32, the others as they are. Throws
 * `BadModelFolder` if a pair fits no tensor.
 */
export async function writeMerged(
  to: string,
  tensors: ReadonlyMap<string, StoredTensor>,
  pairs: ReadonlyMap<string, LoraPair>,
  progress: WriteProgress = {},
): Promise<void> {
  refuseOtherBase(tensors, pairs);
  const written = [...tensors.entries()]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, tensor]): [string, Written] => [name, { tensor, pair: pairs.get(name) ?? null }]);
  const file = await open(to, 'wx');
  const inputs = new Inputs();
  let bytes = 0;
  const put = async (piece: Uint8Array): Promise<void> => {
    progress.signal?.throwIfAborted();
    await file.appendFile(piece);
    progress.onProgress?.((bytes += piece.length));
  };
  try {
    await put(headerOf(written));
    for (const [, one] of written) await writeTensor(one, inputs, put);
  } finally {
    await inputs.close();
    await file.close();
  }
}

/** Throws `BadModelFolder` if a pair fits no tensor. */
export function refuseOtherBase(
  tensors: ReadonlyMap<string, StoredTensor>,
  pairs: ReadonlyMap<string, LoraPair>,
): void {
  for (const [name, pair] of pairs) refuseOther(name, pair, tensors.get(name));
}

function refuseOther(name: string, { a, b }: LoraPair, tensor: StoredTensor | undefined): void {
  const [outputs, inputs] = [b.shape[0] as number, a.shape[1] as number];
  if (tensor && tensor.shape.length === 2 && tensor.shape[0] === outputs && tensor.shape[1] === inputs)
    return;
  const found = tensor ? `is [${tensor.shape.join(', ')}] there` : 'is not there';
  throw new BadModelFolder(
    `${a.file}: ${a.name} is for a ${name} of [${outputs}, ${inputs}], which ${found}: the adapter belongs to another base model`,
  );
}

function headerOf(written: readonly [string, Written][]): Uint8Array {
  let at = 0;
  const entries = written.map(([name, { tensor, pair }]) => {
    const { dtype, shape, start, end } = tensor;
    const size = pair ? shape.reduce((product, length) => product * length, 4) : end - start;
    const entry = { dtype: pair ? 'F32' : dtype, shape, data_offsets: [at, at + size] };
    at += size;
    return [name, entry] as const;
  });
  const text = Buffer.from(
    JSON.stringify({ __metadata__: { format: 'pt' }, ...Object.fromEntries(entries) }),
  );
  const header = Buffer.alloc(8 + Math.ceil(text.length / 8) * 8, ' ');
  header.writeBigUInt64LE(BigInt(header.length - 8));
  text.copy(header, 8);
  return header;
}

async function writeTensor(
  { tensor, pair }: Written,
  inputs: Inputs,
  put: (piece: Uint8Array) => Promise<void>,
): Promise<void> {
  const { start, end, shape, file } = tensor;
  const source = await inputs.open(file);
  if (!pair) {
    for (let from = start; from < end; from += bytesAtOnce)
      await put(await bytesOf(source, from, Math.min(end, from + bytesAtOnce)));
    return;
  }
  const [rows, columns] = shape as [number, number];
  const rank = pair.a.shape[0] as number;
  const [a, b] = [await inputs.floats(pair.a), await inputs.floats(pair.b)];
  const factors = factorsOf(a, b, rank, columns, pair.scale);
  const rowBytes = (end - start) / rows;
  const rowsAtOnce = 2 * Math.max(1, Math.floor(workAtOnce / (2 * columns * rank)));
  for (let row = 0; row < rows; row += rowsAtOnce) {
    const until = Math.min(rows, row + rowsAtOnce);
    const values = floatsOf(await bytesOf(source, start + row * rowBytes, start + until * rowBytes), tensor);
    addProduct(values, row, columns, factors);
    await put(new Uint8Array(values.buffer));
  }
}

/** How many ranks one pass over the columns adds. One rank per pass would spend most of its time on reading and writing the sums. */
const ranksAtOnce = 4;

interface Factors {
  /** A by rank and B by row, as doubles, with zeros up to a whole number of passes. */
  a: Float64Array;
  b: Float64Array;
  /** The number of ranks, including those of zeros that fill the last pass. */
  ranks: number;
  scale: number;
}

/** `a`: by rank, `b`: by row. */
function factorsOf(a: Float32Array, b: Float32Array, rank: number, columns: number, scale: number): Factors {
  const ranks = Math.ceil(rank / ranksAtOnce) * ranksAtOnce;
  const [padded, byRow] = [new Float64Array(ranks * columns), new Float64Array((b.length / rank) * ranks)];
  padded.set(a);
  for (let row = 0; row * rank < b.length; row++)
    byRow.set(b.subarray(row * rank, (row + 1) * rank), row * ranks);
  return { a: padded, b: byRow, ranks, scale };
}

/**
 * Adds scale · B·A to some rows of W, in double precision, rounded once. Two rows share each reading of A. Each sum is made in the
 * order of ranks, so its bits do not depend on how many are added at once.
 */
function addProduct(
  values: Float32Array,
  firstRow: number,
  columns: number,
  { a, b, ranks, scale }: Factors,
): void {
  const [sums, nextSums] = [new Float64Array(columns), new Float64Array(columns)];
  const none = new Float64Array(ranks);
  for (let from = 0, row = firstRow; from < values.length; from += 2 * columns, row += 2) {
    sums.fill(0);
    nextSums.fill(0);
    const one = b.subarray(row * ranks, (row + 1) * ranks);
    const hasNext = from + columns < values.length;
    const next = hasNext ? b.subarray((row + 1) * ranks, (row + 2) * ranks) : none;
    for (let k = 0; k < ranks; k += ranksAtOnce)
      addRanks(sums, nextSums, a.subarray(k * columns), one.subarray(k), next.subarray(k));
    addScaled(values.subarray(from, from + columns), sums, scale);
    if (hasNext) addScaled(values.subarray(from + columns, from + 2 * columns), nextSums, scale);
  }
}

/** Adds the products of the next `ranksAtOnce` ranks to the sums of two rows. */
function addRanks(
  sums: Float64Array,
  nextSums: Float64Array,
  a: Float64Array,
  one: Float64Array,
  next: Float64Array,
): void {
  const columns = sums.length;
  const [f0, f1, f2, f3] = one as unknown as [number, number, number, number];
  const [g0, g1, g2, g3] = next as unknown as [number, number, number, number];
  for (let column = 0; column < columns; column++) {
    const a0 = a[column] as number;
    const a1 = a[column + columns] as number;
    const a2 = a[column + 2 * columns] as number;
    const a3 = a[column + 3 * columns] as number;
    sums[column] = (sums[column] as number) + f0 * a0 + f1 * a1 + f2 * a2 + f3 * a3;
    nextSums[column] = (nextSums[column] as number) + g0 * a0 + g1 * a1 + g2 * a2 + g3 * a3;
  }
}

function addScaled(row: Float32Array, sums: Float64Array, scale: number): void {
  for (let column = 0; column < sums.length; column++)
    row[column] = (row[column] as number) + scale * (sums[column] as number);
}

/** The files that are read, each opened once. */
class Inputs {
  private readonly handles = new Map<string, FileHandle>();

  async open(path: string): Promise<FileHandle> {
    const handle = this.handles.get(path) ?? (await open(path));
    this.handles.set(path, handle);
    return handle;
  }

  async floats(tensor: StoredTensor): Promise<Float32Array> {
    return floatsOf(await bytesOf(await this.open(tensor.file), tensor.start, tensor.end), tensor);
  }

  async close(): Promise<void> {
    await Promise.all([...this.handles.values()].map((handle) => handle.close()));
  }
}
