// The digest of a state, or of a model's weights, as it lies in a file (docs/engine-protocol.md, "The state"), computed without the
// engine that wrote it.
import { open, stat } from 'node:fs/promises';
import { createBLAKE3 } from 'hash-wasm';
import type { Digest } from '../spec/records.js';
import { canonicalText } from '../store/canonical.js';
import { decodeSafetensorsHeader, safetensorsHeaderLength } from '../store/safetensors.js';
import { BadTensorFile } from '../store/store-errors.js';

const leafBytes = 1 << 20;
const lengthBytes = 8;

type Metadata = Record<string, string>;

/** Throws `BadTensorFile` where the file is no state. */
export function stateFileDigest(path: string, signal?: AbortSignal): Promise<Digest> {
  return treeDigest(path, 'longhaul.state/2', stateIdentity, signal);
}

/** Of a file that `saveWeights` wrote: the digest that LoRA states call their base. Throws `BadTensorFile`. */
export function weightsFileDigest(path: string, signal?: AbortSignal): Promise<Digest> {
  return treeDigest(
    path,
    'longhaul.weights/1',
    ({ architecture }) => ({ architecture: json(architecture) }),
    signal,
  );
}

/** What a digest covers beside the tensors: the file's metadata with their own types. */
function stateIdentity({ architecture, optimizer_steps, moments, lora, base }: Metadata): object {
  return {
    architecture: json(architecture),
    optimizer_steps: Number(optimizer_steps),
    moments: moments ?? null,
    ...(lora === undefined ? {} : { lora: json(lora), base: base ?? null }),
  };
}

/** Such files are canonical, so what follows the header is the concatenation that is hashed, in leaves of 1 MiB. */
async function treeDigest(
  path: string,
  domain: string,
  identityOf: (metadata: Metadata) => object,
  signal: AbortSignal | undefined,
): Promise<Digest> {
  const { size } = await stat(path);
  const [file, root, leaf] = await Promise.all([open(path), createBLAKE3(), createBLAKE3()]);
  const read = async (start: number, length: number): Promise<Uint8Array> => {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, start);
    if (bytesRead !== length) throw new BadTensorFile(`${path} ends after ${start + bytesRead} bytes`);
    return buffer;
  };
  try {
    const lengthField = await read(0, Math.min(lengthBytes, size));
    const header = await read(0, lengthBytes + safetensorsHeaderLength(lengthField, size, path));
    const { metadata, dataOffset } = decodeSafetensorsHeader(header, size, path);
    root.init().update(`${domain}\n${canonicalText(identityOf(metadata))}\n`);
    for (let at = dataOffset; at < size; at += leafBytes) {
      signal?.throwIfAborted();
      leaf.init().update(await read(at, Math.min(leafBytes, size - at)));
      root.update(leaf.digest('binary'));
    }
    return root.digest('hex');
  } catch (error) {
    // Metadata that is no JSON, or holds what JSON cannot.
    if (error instanceof SyntaxError || error instanceof TypeError)
      throw new BadTensorFile(`${path} is no file of Longhaul's engine: ${error.message}`, { cause: error });
    throw error;
  } finally {
    await file.close();
  }
}

function json(text: string | undefined): unknown {
  return JSON.parse(text ?? 'null');
}
