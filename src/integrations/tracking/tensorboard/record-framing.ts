// TFRecord framing: length, its checksum, data, its checksum; all little-endian. Checksums are CRC-32C, masked.
import { createCRC32, type IHasher } from 'hash-wasm';

/** CRC-32C (Castagnoli), reversed. */
const POLYNOMIAL = 0x82f63b78;
const MASK_DELTA = 0xa282ead8;
const HEADER_BYTES = 12;
const FOOTER_BYTES = 4;

export class RecordFraming {
  private constructor(private readonly hasher: IHasher) {}

  static async create(): Promise<RecordFraming> {
    return new RecordFraming(await createCRC32(POLYNOMIAL));
  }

  frame(data: Uint8Array): Buffer {
    const framed = Buffer.alloc(HEADER_BYTES + data.length + FOOTER_BYTES);
    framed.writeBigUInt64LE(BigInt(data.length), 0);
    framed.writeUInt32LE(this.checksum(framed.subarray(0, 8)), 8);
    framed.set(data, HEADER_BYTES);
    framed.writeUInt32LE(this.checksum(data), HEADER_BYTES + data.length);
    return framed;
  }

  /**
   * The first record of `bytes` and its size in bytes; null if it is incomplete; `damaged` if a checksum is wrong, so that no later record
   * can be found either.
   */
  first(bytes: Buffer): { data: Buffer; taken: number } | 'damaged' | null {
    if (bytes.length < HEADER_BYTES) return null;
    if (bytes.readUInt32LE(8) !== this.checksum(bytes.subarray(0, 8))) return 'damaged';
    const length = Number(bytes.readBigUInt64LE(0));
    const taken = HEADER_BYTES + length + FOOTER_BYTES;
    if (bytes.length < taken) return null;
    const data = bytes.subarray(HEADER_BYTES, HEADER_BYTES + length);
    return bytes.readUInt32LE(HEADER_BYTES + length) === this.checksum(data) ? { data, taken } : 'damaged';
  }

  private checksum(bytes: Uint8Array): number {
    const crc = Number.parseInt(this.hasher.init().update(bytes).digest('hex'), 16);
    const rotated = ((crc >>> 15) | (crc << 17)) >>> 0;
    return (rotated + MASK_DELTA) >>> 0;
  }
}
