// The digest of a state as it lies in a file (docs/engine-protocol.md, "The state"), computed without the engine that wrote it.
import { createHash } from 'node:crypto';
import { open, stat } from 'node:fs/promises';
import type { Digest } from '../spec/records.js';
import { canonicalText } from '../store/canonical.js';
import { decodeSafetensorsHeader, safetensorsHeaderLength } from '../store/safetensors.js';
import { BadTensorFile } from '../store/store-errors.js';

const leafBytes = 1 << 20;
const lengthBytes = 8;

/** State files are canonical, so what follows the header is the concatenation that is hashed. Throws `BadTensorFile`. */
export async function stateFileDigest(path: string, signal?: AbortSignal): Promise<Digest> {
  const { size } = await stat(path);
  const file = await open(path);
  const read = async (start: number, length: number): Promise<Uint8Array> => {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, start);
    if (bytesRead !== length) throw new BadTensorFile(`${path} ends after ${start + bytesRead} bytes`);
    return buffer;
  };
  try {
    const lengthField = await read(0, Math.min(lengthBytes, size));
    const header = await read(0, lengthBytes + safetensorsHeaderLength(lengthField, size, path));
    const { metadata, dataOffset } = decodeSafetensorsHeader(header, size, path);
    const identity = {
      architecture: JSON.parse(metadata['architecture'] ?? 'null') as unknown,
      optimizer_steps: Number(metadata['optimizer_steps']),
    };
    const root = createHash('sha256').update(`longhaul.state/1\n${canonicalText(identity)}\n`);
    for (let at = dataOffset; at < size; at += leafBytes) {
      signal?.throwIfAborted();
      const leaf = await read(at, Math.min(leafBytes, size - at));
      root.update(createHash('sha256').update(leaf).digest());
    }
    return root.digest('hex');
  } catch (error) {
    // Metadata that is no JSON, or holds what JSON cannot.
    if (error instanceof SyntaxError || error instanceof TypeError)
      throw new BadTensorFile(`${path} is no state file: ${error.message}`, { cause: error });
    throw error;
  } finally {
    await file.close();
  }
}
