// Safetensors, canonical: tensors and metadata sorted by name, no holes, header padded to 8 bytes with spaces.
// The reader checks every bound before it makes a view.
import { canonicalText } from '../records/canonical.js';
import { BadTensorFile } from '../record-errors.js';

export type Tensor =
  | { dtype: 'I32'; shape: readonly number[]; data: Int32Array }
  | { dtype: 'F32'; shape: readonly number[]; data: Float32Array }
  | { dtype: 'U8'; shape: readonly number[]; data: Uint8Array }
  | { dtype: 'I8'; shape: readonly number[]; data: Int8Array }
  | { dtype: 'I64'; shape: readonly number[]; data: BigInt64Array };
type TensorType = Tensor['dtype'];

interface TensorFile {
  metadata: Record<string, string>;
  tensors: Record<string, Tensor>;
}

interface TensorEntry<Type = TensorType> {
  dtype: Type;
  shape: number[];
  /** Bytes [start, end) after the header. */
  start: number;
  end: number;
}

const itemBytes: Record<TensorType, number> = { I32: 4, F32: 4, U8: 1, I8: 1, I64: 8 };
const lengthBytes = 8;
const maxHeaderBytes = 100_000_000;

if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1) {
  throw new Error('Longhaul runs on little-endian machines only: tensor files are little-endian');
}

export function encodeSafetensors(file: TensorFile): Uint8Array {
  const names = Object.keys(file.tensors).sort();
  const header: Record<string, unknown> = {};
  let size = 0;
  for (const name of names) {
    const { dtype, shape, data } = file.tensors[name] as Tensor;
    if (name === '__metadata__') throw new BadTensorFile('a tensor cannot have the name __metadata__');
    if (itemCount(shape) !== data.length) {
      throw new BadTensorFile(
        `tensor ${name} has ${data.length} items, but its shape [${shape.join(',')}] needs another number`,
      );
    }
    const entry = { data_offsets: [size, size + data.byteLength], dtype, shape: [...shape] };
    // `defineProperty` makes an own property even of a name such as __proto__.
    Object.defineProperty(header, name, { value: entry, enumerable: true });
    size += data.byteLength;
  }
  if (Object.keys(file.metadata).length > 0) header.__metadata__ = file.metadata;
  const text = new TextEncoder().encode(canonicalText(header));
  const headerLength = Math.ceil(text.length / 8) * 8;
  const bytes = new Uint8Array(lengthBytes + headerLength + size);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(headerLength), true);
  bytes.fill(0x20, lengthBytes, lengthBytes + headerLength);
  bytes.set(text, lengthBytes);
  let offset = lengthBytes + headerLength;
  for (const name of names) {
    const { data } = file.tensors[name] as Tensor;
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
    offset += data.byteLength;
  }
  return bytes;
}

/** Copies the tensors, so they are aligned and independent of `bytes`. Throws `BadTensorFile`. */
export function decodeSafetensors(bytes: Uint8Array, what = 'the file'): TensorFile {
  const { metadata, entries, dataOffset } = decodeSafetensorsHeader(bytes, bytes.length, what);
  const tensors: Record<string, Tensor> = {};
  for (const [name, { dtype, shape, start, end }] of Object.entries(entries)) {
    // `defineProperty` makes an own property even of a name such as __proto__.
    Object.defineProperty(tensors, name, {
      value: tensorOf(dtype, shape, copyOf(bytes.subarray(dataOffset + start, dataOffset + end))),
      enumerable: true,
    });
  }
  return { metadata, tensors };
}

/**
 * Reads only the header, which `bytes` must hold; `fileSize`: size of the whole file. `sizes`: the types that a tensor may have, with the
 * bytes of an item. Throws `BadTensorFile`.
 */
export function decodeSafetensorsHeader<Type extends string = TensorType>(
  bytes: Uint8Array,
  fileSize: number,
  what = 'the file',
  sizes = itemBytes as Record<Type, number>,
): { metadata: Record<string, string>; entries: Record<string, TensorEntry<Type>>; dataOffset: number } {
  const dataOffset = lengthBytes + safetensorsHeaderLength(bytes, fileSize, what);
  if (bytes.length < dataOffset)
    throw bad(what, `it ends after ${bytes.length} of its header's ${dataOffset} bytes`);
  const header = parseHeader(bytes.subarray(lengthBytes, dataOffset), what);
  let metadata: Record<string, string> = {};
  const entries: Record<string, TensorEntry<Type>> = {};
  for (const [name, value] of Object.entries(header)) {
    if (name === '__metadata__') {
      metadata = checkMetadata(value, what);
      continue;
    }
    Object.defineProperty(entries, name, { value: checkEntry(name, value, what, sizes), enumerable: true });
  }
  checkCoverage(entries, fileSize - dataOffset, what);
  return { metadata, entries, dataOffset };
}

/** Length of the header in bytes, from the first 8 bytes of the file. */
export function safetensorsHeaderLength(bytes: Uint8Array, fileSize: number, what = 'the file'): number {
  if (bytes.length < lengthBytes)
    throw bad(what, `it has ${fileSize} bytes, but the header length alone needs 8`);
  const length = new DataView(bytes.buffer, bytes.byteOffset, lengthBytes).getBigUint64(0, true);
  if (length > BigInt(maxHeaderBytes) || length > BigInt(Math.max(0, fileSize - lengthBytes))) {
    throw bad(what, `its header claims ${length} bytes, but the file has ${fileSize}`);
  }
  return Number(length);
}

function parseHeader(bytes: Uint8Array, what: string): Record<string, unknown> {
  if (bytes[0] !== 0x7b) throw bad(what, 'its header does not begin with "{"');
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw bad(what, `its header is not JSON (${(error as Error).message})`);
  }
  return header as Record<string, unknown>;
}

function checkMetadata(value: unknown, what: string): Record<string, string> {
  const members = typeof value === 'object' && value !== null && !Array.isArray(value) ? value : null;
  if (members === null || Object.values(members).some((member) => typeof member !== 'string')) {
    throw bad(what, '__metadata__ must hold strings only');
  }
  return members as Record<string, string>;
}

function checkEntry<Type extends string>(
  name: string,
  value: unknown,
  what: string,
  sizes: Record<Type, number>,
): TensorEntry<Type> {
  const entry = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== 'string' || !Object.hasOwn(sizes, dtype)) {
    throw bad(
      what,
      `tensor ${name} has dtype ${JSON.stringify(dtype)}; known are ${Object.keys(sizes).join(', ')}`,
    );
  }
  if (!isCountList(shape)) throw bad(what, `tensor ${name} has a shape that is not a list of whole numbers`);
  if (!isCountList(offsets) || offsets.length !== 2)
    throw bad(what, `tensor ${name} does not have two data_offsets`);
  const [start, end] = offsets as [number, number];
  const size = itemCount(shape) * sizes[dtype as Type];
  if (end - start !== size) {
    throw bad(
      what,
      `tensor ${name} of ${dtype}[${shape.join(',')}] needs ${size} bytes, but its offsets give ${end - start}`,
    );
  }
  return { dtype: dtype as Type, shape, start, end };
}

/** Throws unless every byte after the header belongs to exactly one tensor. */
function checkCoverage(entries: Record<string, TensorEntry<string>>, dataBytes: number, what: string): void {
  let position = 0;
  for (const [name, { start, end }] of Object.entries(entries).sort(
    ([, a], [, b]) => a.start - b.start || a.end - b.end,
  )) {
    if (start !== position)
      throw bad(what, `tensor ${name} starts at byte ${start}, but the tensor before it ends at ${position}`);
    position = end;
  }
  if (position > dataBytes)
    throw bad(what, `it is cut short: its tensors need ${position} data bytes, but it has ${dataBytes}`);
  if (position !== dataBytes)
    throw bad(what, `its tensors end at byte ${position}, but it has ${dataBytes} data bytes`);
}

function tensorOf(dtype: TensorType, shape: number[], buffer: ArrayBuffer): Tensor {
  switch (dtype) {
    case 'I32':
      return { dtype, shape, data: new Int32Array(buffer) };
    case 'F32':
      return { dtype, shape, data: new Float32Array(buffer) };
    case 'U8':
      return { dtype, shape, data: new Uint8Array(buffer) };
    case 'I8':
      return { dtype, shape, data: new Int8Array(buffer) };
    case 'I64':
      return { dtype, shape, data: new BigInt64Array(buffer) };
  }
}

/** A copy with its own aligned memory. A Buffer's `slice` would share the pool's memory, at any alignment. */
function copyOf(bytes: Uint8Array): ArrayBuffer {
  const copy = new ArrayBuffer(bytes.length);
  new Uint8Array(copy).set(bytes);
  return copy;
}

function isCountList(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && (item as number) >= 0);
}

function itemCount(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1);
}

function bad(what: string, problem: string): BadTensorFile {
  return new BadTensorFile(`${what} is not a usable safetensors file: ${problem}`);
}
