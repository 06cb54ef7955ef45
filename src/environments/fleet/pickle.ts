// Pickles values as Python does; supports the types that occur in the arguments of a verifier.
//
// The bytes are those of `cloudpickle.dumps` on CPython 3.11, which writes protocol 5. Python refers back to a string that occurs twice as the
// same object; here each string is written in full, because a JavaScript string has no identity.

const frameTarget = 64 * 1024;
const frameMin = 4;

const op = {
  proto: 0x80,
  frame: 0x95,
  stop: 0x2e,
  mark: 0x28,
  memoize: 0x94,
  none: 0x4e,
  shortUnicode: 0x8c,
  unicode: 0x58,
  emptyDict: 0x7d,
  setItem: 0x73,
  setItems: 0x75,
  pair: 0x86,
} as const;

/** A Python tuple of two. */
export class Pair {
  constructor(
    readonly first: Picklable,
    readonly second: Picklable,
  ) {}
}

/** An object is written as a dict; it must have fewer than 1,000 items. Values must contain no cycle, and no part twice. */
export type Picklable = null | string | Pair | { readonly [key: string]: Picklable };

/** Encodes a lone surrogate as Python's `surrogatepass` does, so that Python reads the same string. */
export function pickle(value: Picklable): Buffer {
  return new Pickler().dump(value);
}

class Pickler {
  readonly #written: Uint8Array[] = [];
  #frame: Uint8Array[] = [];
  #frameSize = 0;

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
    if (typeof value === 'string') return this.#saveString(value);
    if (value instanceof Pair) return this.#savePair(value);
    return this.#saveDict(value);
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

  #savePair({ first, second }: Pair): void {
    this.#save(first);
    this.#save(second);
    this.#put(op.pair);
    this.#memoize();
  }

  #saveDict(dict: Readonly<Record<string, Picklable>>): void {
    this.#put(op.emptyDict);
    this.#memoize();
    const items = Object.entries(dict);
    if (items.length > 1) this.#put(op.mark);
    for (const [key, value] of items) {
      this.#save(key);
      this.#save(value);
    }
    if (items.length > 0) this.#put(items.length > 1 ? op.setItems : op.setItem);
  }

  #memoize(): void {
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

/** Little-endian. */
function u32(value: number): number[] {
  return [value & 255, (value >> 8) & 255, (value >> 16) & 255, (value >>> 24) & 255];
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
