// Values as Python pickles them.
//
// The bytes are those of `cloudpickle.dumps` on CPython 3.11, which writes protocol 5, with two exceptions that only values with repeated
// parts show. Python refers back to a string that occurs twice as the same object; here each string is written in full, because a
// JavaScript string has no identity. And Python tells 1.0 from 1; here a whole number is an int.

const frameTarget = 64 * 1024;
const frameMin = 4;
const batchSize = 1000;

const op = {
  proto: 0x80,
  frame: 0x95,
  stop: 0x2e,
  mark: 0x28,
  memoize: 0x94,
  get: 0x68,
  longGet: 0x6a,
  none: 0x4e,
  true: 0x88,
  false: 0x89,
  int1: 0x4b,
  int2: 0x4d,
  int4: 0x4a,
  long1: 0x8a,
  float: 0x47,
  shortUnicode: 0x8c,
  unicode: 0x58,
  emptyList: 0x5d,
  append: 0x61,
  appends: 0x65,
  emptyDict: 0x7d,
  setItem: 0x73,
  setItems: 0x75,
  emptyTuple: 0x29,
  tuple: 0x74,
  /** Tuples of one, two and three items follow each other. */
  tuple1: 0x85,
} as const;

/** A Python tuple; an array is a list. */
export class Tuple {
  readonly items: readonly Picklable[];

  constructor(...items: readonly Picklable[]) {
    this.items = items;
  }
}

/** An object is a dict. Values contain no cycle. */
export type Picklable =
  null | boolean | number | string | Tuple | readonly Picklable[] | { readonly [key: string]: Picklable };

/** Half of a surrogate pair becomes what Python's `surrogatepass` makes of it, so that Python reads the same string. */
export function pickle(value: Picklable): Buffer {
  return new Pickler().dump(value);
}

class Pickler {
  readonly #written: Uint8Array[] = [];
  #frame: Uint8Array[] = [];
  #frameSize = 0;
  readonly #memo = new Map<object, number>();
  #memoized = 0;

  dump(value: Picklable): Buffer {
    this.#written.push(Uint8Array.of(op.proto, 5));
    this.#save(value);
    this.#put(op.stop);
    this.#closeFrame();
    return Buffer.concat(this.#written);
  }

  #save(value: Picklable): void {
    if (this.#frameSize >= frameTarget) this.#closeFrame();
    if (value === null) return this.#put(op.none);
    if (typeof value === 'boolean') return this.#put(value ? op.true : op.false);
    if (typeof value === 'number') return this.#saveNumber(value);
    if (typeof value === 'string') return this.#saveString(value);
    const known = this.#memo.get(value);
    if (known !== undefined)
      return this.#put(...(known < 256 ? [op.get, known] : [op.longGet, ...u32(known)]));
    if (value instanceof Tuple) return this.#saveTuple(value);
    if (isList(value)) return this.#saveList(value);
    return this.#saveDict(value);
  }

  #saveNumber(value: number): void {
    if (!Number.isSafeInteger(value) || Object.is(value, -0)) {
      const bytes = Buffer.alloc(8);
      bytes.writeDoubleBE(value);
      return this.#put(op.float, ...bytes);
    }
    if (value >= 0 && value < 2 ** 8) return this.#put(op.int1, value);
    if (value >= 0 && value < 2 ** 16) return this.#put(op.int2, value & 255, value >> 8);
    if (value >= -(2 ** 31) && value < 2 ** 31) return this.#put(op.int4, ...u32(value));
    const bytes = shortestTwosComplement(BigInt(value));
    this.#put(op.long1, bytes.length, ...bytes);
  }

  #saveString(value: string): void {
    const bytes = utf8(value);
    const header = Uint8Array.from(
      bytes.length < 256 ? [op.shortUnicode, bytes.length] : [op.unicode, ...u32(bytes.length)],
    );
    if (bytes.length >= frameTarget) {
      this.#closeFrame();
      this.#written.push(header, bytes);
    } else {
      this.#putBytes(header);
      this.#putBytes(bytes);
    }
    this.#memoize();
  }

  #saveTuple(tuple: Tuple): void {
    const { length } = tuple.items;
    if (length === 0) return this.#put(op.emptyTuple);
    if (length > 3) this.#put(op.mark);
    for (const item of tuple.items) this.#save(item);
    this.#put(length > 3 ? op.tuple : op.tuple1 + length - 1);
    this.#memoize(tuple);
  }

  #saveList(list: readonly Picklable[]): void {
    this.#put(op.emptyList);
    this.#memoize(list);
    if (list.length === 1) {
      this.#save(list[0] as Picklable);
      return this.#put(op.append);
    }
    for (let begin = 0; begin < list.length; begin += batchSize) {
      this.#put(op.mark);
      for (const item of list.slice(begin, begin + batchSize)) this.#save(item);
      this.#put(op.appends);
    }
  }

  #saveDict(dict: Readonly<Record<string, Picklable>>): void {
    this.#put(op.emptyDict);
    this.#memoize(dict);
    const items = Object.entries(dict);
    const saveItem = ([key, value]: [string, Picklable]): void => {
      this.#save(key);
      this.#save(value);
    };
    if (items.length === 1) {
      items.forEach(saveItem);
      return this.#put(op.setItem);
    }
    // Unlike a list, a dict with a full last batch is followed by an empty one.
    for (let begin = 0; items.length > 0 && begin <= items.length; begin += batchSize) {
      this.#put(op.mark);
      items.slice(begin, begin + batchSize).forEach(saveItem);
      this.#put(op.setItems);
    }
  }

  #memoize(value?: object): void {
    if (value) this.#memo.set(value, this.#memoized);
    this.#memoized += 1;
    this.#put(op.memoize);
  }

  #put(...bytes: number[]): void {
    this.#putBytes(Uint8Array.from(bytes));
  }

  #putBytes(bytes: Uint8Array): void {
    this.#frame.push(bytes);
    this.#frameSize += bytes.length;
  }

  #closeFrame(): void {
    if (this.#frameSize >= frameMin)
      this.#written.push(Uint8Array.from([op.frame, ...u32(this.#frameSize), 0, 0, 0, 0]));
    this.#written.push(...this.#frame);
    this.#frame = [];
    this.#frameSize = 0;
  }
}

function isList(value: readonly Picklable[] | object): value is readonly Picklable[] {
  return Array.isArray(value);
}

/** Little-endian; a negative number as its two's complement. */
function u32(value: number): number[] {
  return [value & 255, (value >> 8) & 255, (value >> 16) & 255, (value >>> 24) & 255];
}

/** Little-endian. */
function shortestTwosComplement(value: bigint): number[] {
  const bytes: number[] = [];
  let rest = value;
  do {
    bytes.push(Number(rest & 255n));
    rest >>= 8n;
  } while (rest !== ((bytes.at(-1) as number) & 128 ? -1n : 0n));
  return bytes;
}

function utf8(text: string): Buffer {
  const parts = text.split(/(\p{Surrogate})/u).map((part) => {
    const code = part.charCodeAt(0);
    const alone = part.length === 1 && code >= 0xd800 && code < 0xe000;
    return alone
      ? Buffer.from([0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63)])
      : Buffer.from(part);
  });
  return Buffer.concat(parts);
}
