// TFRecord framing: length, checksum of the length, data, checksum of the data; all little-endian. Checksums are masked CRC-32C.
import { createCRC32, type IHasher } from 'hash-wasm';

/** CRC-32C (Castagnoli), bit-reversed. */
const polynomial = 0x82f63b78;
const maskDelta = 0xa282ead8;
const headerBytes = 12;
const footerBytes = 4;

export class RecordFraming {
  private constructor(private readonly hasher: IHasher) {}

  static async create(): Promise<RecordFraming> {
    return new RecordFraming(await createCRC32(polynomial));
  }

  frame(data: Uint8Array): Buffer {
    const framed = Buffer.alloc(headerBytes + data.length + footerBytes);
    framed.writeBigUInt64LE(BigInt(data.length), 0);
    framed.writeUInt32LE(this.checksum(framed.subarray(0, 8)), 8);
    framed.set(data, headerBytes);
    framed.writeUInt32LE(this.checksum(data), headerBytes + data.length);
    return framed;
  }

  /**
   * The first record of `bytes`, and its size in bytes. Null if it is incomplete; `damaged` if a checksum is wrong: then no later record
   * can be found either.
   */
  first(bytes: Buffer): { data: Buffer; taken: number } | 'damaged' | null {
    if (bytes.length < headerBytes) return null;
    if (bytes.readUInt32LE(8) !== this.checksum(bytes.subarray(0, 8))) return 'damaged';
    const length = Number(bytes.readBigUInt64LE(0));
    const taken = headerBytes + length + footerBytes;
    if (bytes.length < taken) return null;
    const data = bytes.subarray(headerBytes, headerBytes + length);
    return bytes.readUInt32LE(headerBytes + length) === this.checksum(data) ? { data, taken } : 'damaged';
  }

  private checksum(bytes: Uint8Array): number {
    const crc = Number.parseInt(this.hasher.init().update(bytes).digest('hex'), 16);
    const rotated = ((crc >>> 15) | (crc << 17)) >>> 0;
    return (rotated + maskDelta) >>> 0;
  }
}
