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

/** Work between two pauses, in multiplications; meanwhile the process can do nothing else. */
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
  for (const [name, pair] of pairs) refuseOther(name, pair, tensors.get(name));
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
  const factors = { a: await inputs.floats(pair.a), b: await inputs.floats(pair.b), scale: pair.scale };
  const rank = pair.a.shape[0] as number;
  const rowBytes = (end - start) / rows;
  const rowsAtOnce = Math.max(1, Math.floor(workAtOnce / (columns * rank)));
  for (let row = 0; row < rows; row += rowsAtOnce) {
    const until = Math.min(rows, row + rowsAtOnce);
    const values = floatsOf(await bytesOf(source, start + row * rowBytes, start + until * rowBytes), tensor);
    addProduct(values, row, columns, rank, factors);
    await put(new Uint8Array(values.buffer));
  }
}

/** Adds scale · B·A to some rows of W, in double precision, rounded once. */
function addProduct(
  values: Float32Array,
  firstRow: number,
  columns: number,
  rank: number,
  { a, b, scale }: { a: Float32Array; b: Float32Array; scale: number },
): void {
  const sums = new Float64Array(columns);
  for (let from = 0, row = firstRow; from < values.length; from += columns, row++) {
    sums.fill(0);
    for (let k = 0; k < rank; k++) {
      const factor = b[row * rank + k] as number;
      const at = k * columns;
      for (let column = 0; column < columns; column++)
        sums[column] = (sums[column] as number) + factor * (a[at + column] as number);
    }
    for (let column = 0; column < columns; column++)
      values[from + column] = (values[from + column] as number) + scale * (sums[column] as number);
  }
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
