// Computes the digest of a state file or weights file without the engine (docs/engine-protocol.md, "The state").
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createBLAKE3 } from 'hash-wasm';
import type { Digest } from '../spec/records/parts.js';
import { canonicalText } from '../store/records/canonical.js';
import { decodeSafetensorsHeader, safetensorsHeaderLength } from '../store/files/safetensors.js';
import { BadTensorFile } from '../store/record-errors.js';

const leafBytes = 1 << 20;
const lengthBytes = 8;

type Metadata = Record<string, string>;

/** A file's bytes, in order, and its size in bytes. */
interface TensorBytes {
  pieces: AsyncIterable<Uint8Array>;
  size: number;
  /** The file's name, for error messages. */
  name: string;
}

/** Throws `BadTensorFile` if the bytes are not a state. */
export function stateDigest(bytes: TensorBytes, signal?: AbortSignal): Promise<Digest> {
  return treeDigest(bytes, 'longhaul.state/2', stateIdentity, signal);
}

/** Throws `BadTensorFile` if the file is not a state. */
export async function stateFileDigest(path: string, signal?: AbortSignal): Promise<Digest> {
  return stateDigest(await bytesOfFile(path), signal);
}

/** Digest of a file that `saveWeights` wrote; in a LoRA state's file, this digest is the `base`. Throws `BadTensorFile`. */
export async function weightsFileDigest(path: string, signal?: AbortSignal): Promise<Digest> {
  return treeDigest(
    await bytesOfFile(path),
    'longhaul.weights/1',
    ({ architecture }) => ({ architecture: json(architecture) }),
    signal,
  );
}

/** What the digest covers besides the tensors: the file's metadata, converted from text to their types. */
function stateIdentity({ architecture, optimizer_steps, moments, lora, base }: Metadata): object {
  return {
    architecture: json(architecture),
    optimizer_steps: Number(optimizer_steps),
    moments: moments ?? null,
    ...(lora === undefined ? {} : { lora: json(lora), base: base ?? null }),
  };
}

/** Hashes the bytes after the header, in leaves of 1 MiB. This works because the files are canonical: tensor order and layout are fixed. */
async function treeDigest(
  { pieces, size, name }: TensorBytes,
  domain: string,
  identityOf: (metadata: Metadata) => object,
  signal: AbortSignal | undefined,
): Promise<Digest> {
  const [root, leaf] = await Promise.all([createBLAKE3(), createBLAKE3()]);
  const iterator = pieces[Symbol.asyncIterator]();
  let held = Buffer.alloc(0);
  const take = async (length: number): Promise<Uint8Array> => {
    const parts = [held];
    for (let there = held.length; there < length;) {
      signal?.throwIfAborted();
      const next = await iterator.next();
      if (next.done) throw new BadTensorFile(`${name} is cut off: ${length - there} bytes are missing`);
      parts.push(Buffer.from(next.value));
      there += next.value.length;
    }
    const all = parts.length === 1 ? held : Buffer.concat(parts);
    held = all.subarray(length);
    return all.subarray(0, length);
  };
  try {
    const lengthField = await take(Math.min(lengthBytes, size));
    const headerBytes = safetensorsHeaderLength(lengthField, size, name);
    const header = Buffer.concat([lengthField, await take(headerBytes)]);
    const { metadata, dataOffset } = decodeSafetensorsHeader(header, size, name);
    root.init().update(`${domain}\n${canonicalText(identityOf(metadata))}\n`);
    for (let at = dataOffset; at < size; at += leafBytes) {
      leaf.init().update(await take(Math.min(leafBytes, size - at)));
      root.update(leaf.digest('binary'));
    }
    return root.digest('hex');
  } catch (error) {
    // The metadata is not JSON, or not canonical JSON.
    if (error instanceof SyntaxError || error instanceof TypeError)
      throw new BadTensorFile(`${name} is not a file of Longhaul's engine: ${error.message}`, {
        cause: error,
      });
    throw error;
  } finally {
    await iterator.return?.();
  }
}

async function bytesOfFile(path: string): Promise<TensorBytes> {
  const { size } = await stat(path);
  return { pieces: createReadStream(path, { highWaterMark: leafBytes }), size, name: path };
}

function json(text: string | undefined): unknown {
  return JSON.parse(text ?? 'null');
}
