// Encodes and decodes frames of the engine's protocol (docs/engine-protocol.md): length, id, JSON header, raw little-endian arrays.
import { isObject } from '../../base/json.js';

export type FrameArray =
  | { name: string; dtype: 'I32'; data: Int32Array }
  | { name: string; dtype: 'F32'; data: Float32Array }
  | { name: string; dtype: 'U8'; data: Uint8Array };

export interface Frame {
  id: number;
  header: Record<string, unknown>;
  arrays: Map<string, FrameArray>;
}

/** Largest allowed value of a frame's length field, in bytes. */
const maxFrameBytes = 256 * 1024 * 1024;

const prefixBytes = 12;

/** Thrown if bytes are not a valid frame. The rest of the stream cannot be read either. */
export class FrameError extends Error {
  override name = 'FrameError';
}

/** Returns the bytes of one frame. Throws FrameError if its length would exceed `maxFrameBytes`. */
export function encodeFrame(id: number, header: object, arrays: readonly FrameArray[] = []): Buffer {
  const described =
    arrays.length === 0
      ? header
      : { ...header, arrays: arrays.map(({ name, dtype, data }) => ({ name, dtype, shape: [data.length] })) };
  const text = JSON.stringify(described);
  const headerBytes = Buffer.byteLength(text);
  const payloadBytes = arrays.reduce((sum, { data }) => sum + data.byteLength, 0);
  const length = 8 + headerBytes + payloadBytes;
  if (length > maxFrameBytes)
    throw new FrameError(`a frame has ${length} bytes; the limit is ${maxFrameBytes}`);
  const bytes = Buffer.allocUnsafe(4 + length);
  bytes.writeUInt32LE(length, 0);
  bytes.writeUInt32LE(id, 4);
  bytes.writeUInt32LE(headerBytes, 8);
  bytes.write(text, prefixBytes);
  let at = prefixBytes + headerBytes;
  for (const { data } of arrays) {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return bytes;
}

/** Assembles frames from chunks of any size. */
export class FrameDecoder {
  private chunks: Uint8Array[] = [];
  private held = 0;
  /** Size of the first frame in the buffer, in bytes; 4 until its length field has been read. */
  private needed = 4;

  /** Returns all frames that are complete now. Throws FrameError on an invalid frame. */
  push(chunk: Uint8Array): Frame[] {
    this.chunks.push(chunk);
    this.held += chunk.length;
    const frames: Frame[] = [];
    if (this.held < this.needed) return frames;
    const bytes = this.chunks.length === 1 ? asBuffer(chunk) : Buffer.concat(this.chunks, this.held);
    let at = 0;
    this.needed = 4;
    while (bytes.length - at >= 4) {
      const length = bytes.readUInt32LE(at);
      if (length > maxFrameBytes)
        throw new FrameError(`a frame has ${length} bytes; the limit is ${maxFrameBytes}`);
      if (bytes.length - at < 4 + length) {
        this.needed = 4 + length;
        break;
      }
      frames.push(decodeFrame(bytes.subarray(at + 4, at + 4 + length)));
      at += 4 + length;
    }
    const rest = bytes.subarray(at);
    this.chunks = rest.length > 0 ? [rest] : [];
    this.held = rest.length;
    return frames;
  }

  /** True if the stream has ended in the middle of a frame. */
  get partial(): boolean {
    return this.held > 0;
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** `body`: everything after the length field. */
function decodeFrame(body: Buffer): Frame {
  if (body.length < 8) throw new FrameError('a frame is shorter than its id and header length');
  const headerBytes = body.readUInt32LE(4);
  if (8 + headerBytes > body.length) throw new FrameError('a header is longer than its frame');
  const header = parseHeader(body.toString('utf8', 8, 8 + headerBytes));
  const arrays = new Map<string, FrameArray>();
  let at = 8 + headerBytes;
  for (const entry of Array.isArray(header['arrays']) ? header['arrays'] : []) {
    const { name, dtype, elements } = describeArray(entry);
    const size = elements * (dtype === 'U8' ? 1 : 4);
    if (at + size > body.length) throw new FrameError(`array ${name} is longer than its frame`);
    // Copy the bytes, because an array must be aligned and must not keep a large receive buffer alive.
    const data = Uint8Array.prototype.slice.call(body, at, at + size).buffer;
    if (dtype === 'I32') arrays.set(name, { name, dtype, data: new Int32Array(data) });
    else if (dtype === 'F32') arrays.set(name, { name, dtype, data: new Float32Array(data) });
    else arrays.set(name, { name, dtype, data: new Uint8Array(data) });
    at += size;
  }
  if (at !== body.length) throw new FrameError(`a frame has ${body.length - at} bytes after its last array`);
  return { id: body.readUInt32LE(0), header, arrays };
}

function parseHeader(text: string): Record<string, unknown> {
  let header: unknown;
  try {
    header = JSON.parse(text);
  } catch (error) {
    throw new FrameError('a header is not JSON', { cause: error });
  }
  if (!isObject(header)) throw new FrameError('a header is not a JSON object');
  return header;
}

function describeArray(entry: unknown): { name: string; dtype: FrameArray['dtype']; elements: number } {
  if (isObject(entry) && typeof entry['name'] === 'string' && Array.isArray(entry['shape'])) {
    const { name, dtype } = entry;
    const elements = entry['shape'].reduce<number>((product, extent) => product * Number(extent), 1);
    const known = dtype === 'I32' || dtype === 'F32' || dtype === 'U8';
    if (known && Number.isSafeInteger(elements) && elements >= 0) return { name, dtype, elements };
  }
  throw new FrameError('a header describes an array wrongly');
}
