// References within a JSON Schema.
import { isObject } from './json.js';

/** The schema in `root` at a JSON pointer such as `#/$defs/Address`; undefined if there is none. */
export function referredSchema(root: unknown, reference: string): unknown {
  if (!reference.startsWith('#')) return undefined;
  let place = root;
  for (const part of reference.slice(1).split('/').slice(1)) {
    const key = decodedPart(part).replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(place)) place = place[Number(key)] as unknown;
    else if (isObject(place) && Object.hasOwn(place, key)) place = place[key];
    else return undefined;
  }
  return place;
}

/** A server may write a `%` that encodes nothing. */
export function decodedPart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
