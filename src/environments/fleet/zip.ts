// Zip files that depend on nothing but their contents.
import { crc32 } from 'node:zlib';

/** 1980-01-01, the first date of the format. */
const date = (1 << 5) | 1;
/** Version 2.0 of the format, the first with folders. */
const version = 20;
const unix = 3 << 8;
/** A regular file that only its owner reads and writes. */
const attributes = 0o600 << 16;
/** Names are in UTF-8. */
const flags = 1 << 11;

/**
 * The zip of the named texts, in their order. Entries are stored, not compressed: compressed bytes, and so the file's sha256, change with
 * the version of zlib.
 */
export function zip(files: readonly (readonly [name: string, text: string])[]): Buffer {
  const entries: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, text] of files) {
    const data = Buffer.from(text);
    const nameBytes = Buffer.from(name);
    const facts = Buffer.concat([
      u16(flags, 0, 0, date),
      u32(crc32(data), data.length, data.length),
      u16(nameBytes.length, 0),
    ]);
    const entry = Buffer.concat([u32(0x04034b50), u16(version), facts, nameBytes, data]);
    entries.push(entry);
    directory.push(
      Buffer.concat([u32(0x02014b50), u16(unix | version, version), facts]),
      Buffer.concat([u16(0, 0, 0), u32(attributes, offset), nameBytes]),
    );
    offset += entry.length;
  }
  const listed = Buffer.concat(directory);
  const end = [u32(0x06054b50), u16(0, 0, files.length, files.length), u32(listed.length, offset), u16(0)];
  return Buffer.concat([...entries, listed, ...end]);
}

function u16(...values: number[]): Buffer {
  const bytes = Buffer.alloc(2 * values.length);
  values.forEach((value, index) => bytes.writeUInt16LE(value, 2 * index));
  return bytes;
}

function u32(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  values.forEach((value, index) => bytes.writeUInt32LE(value, 4 * index));
  return bytes;
}
