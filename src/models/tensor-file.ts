// Reads safetensors files that others wrote: their headers, and values as fp32.
import { type FileHandle, open } from 'node:fs/promises';
import { decodeSafetensorsHeader, safetensorsHeaderLength } from '../store/files/safetensors.js';
import { BadModelFolder } from './hf-config.js';
import { refusePointer } from './model-files.js';

/** Bytes of an item. A multimodal model's other parts may have types that the engine does not read. */
const itemBytes = {
  ...{ F64: 8, F32: 4, F16: 2, BF16: 2, F8_E4M3: 1, F8_E5M2: 1, F8_E8M0: 1 },
  ...{ I64: 8, I32: 4, I16: 2, I8: 1, U64: 8, U32: 4, U16: 2, U8: 1, BOOL: 1 },
};
type StoredType = keyof typeof itemBytes;

/** A tensor in a file. */
export interface StoredTensor {
  name: string;
  file: string;
  dtype: StoredType;
  shape: readonly number[];
  /** Bytes [start, end) of the file. */
  start: number;
  end: number;
}

/** Reads the header. Throws `BadModelFolder` if the file is damaged, cut short, or a pointer. */
export async function tensorsIn(file: string): Promise<StoredTensor[]> {
  const handle = await open(file).catch((error: Error) => {
    throw new BadModelFolder(`${file} cannot be read: ${error.message}`, { cause: error });
  });
  try {
    const { size } = await handle.stat();
    const first = await bytesOf(handle, 0, Math.min(size, 256));
    refusePointer(first.toString('latin1'), file);
    const length = safetensorsHeaderLength(first, size, file);
    const { entries, dataOffset } = decodeSafetensorsHeader<StoredType>(
      await bytesOf(handle, 0, 8 + length),
      size,
      file,
      itemBytes,
    );
    return Object.entries(entries).map(([name, { dtype, shape, start, end }]) => ({
      ...{ name, file, dtype, shape },
      ...{ start: dataOffset + start, end: dataOffset + end },
    }));
  } catch (error) {
    if ((error as Error).name !== 'BadTensorFile') throw error;
    throw new BadModelFolder(`${(error as Error).message}; copy or download it again`, { cause: error });
  } finally {
    await handle.close();
  }
}

/** Bytes [start, end) of a file, in memory of their own. Throws `BadModelFolder` if the file ends before. */
export async function bytesOf(handle: FileHandle, start: number, end: number): Promise<Buffer> {
  const bytes = Buffer.from(new ArrayBuffer(end - start));
  for (let done = 0; done < bytes.length;) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, start + done);
    if (bytesRead === 0)
      throw new BadModelFolder(`a file became shorter while it was read, at byte ${start + done}`);
    done += bytesRead;
  }
  return bytes;
}

/** Values as fp32, exactly. Throws `BadModelFolder` for types that are not F32, F16 or BF16. */
export function floatsOf(bytes: Buffer, { dtype, name, file }: StoredTensor): Float32Array {
  const { buffer } = bytes;
  if (dtype === 'F32') return new Float32Array(buffer as ArrayBuffer);
  if (dtype !== 'BF16' && dtype !== 'F16')
    throw new BadModelFolder(`${file}: tensor ${name} is ${dtype}; expected F32, F16 or BF16`);
  const items = new Uint16Array(buffer as ArrayBuffer);
  const floats = new Float32Array(items.length);
  const bits = new Uint32Array(floats.buffer);
  for (let i = 0; i < items.length; i++)
    if (dtype === 'BF16') bits[i] = (items[i] as number) << 16;
    else floats[i] = halfToFloat(items[i] as number);
  return floats;
}

function halfToFloat(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}
