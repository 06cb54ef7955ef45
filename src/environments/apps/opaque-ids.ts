// Opaque ids for the rows of one world, all different.
import type { Draw } from './random.js';

export function opaqueIds(draw: Draw): (prefix: string) => string {
  const taken = new Set<string>();
  return (prefix) => {
    let id = draw.opaqueId(prefix);
    while (taken.has(id)) id = draw.opaqueId(prefix);
    taken.add(id);
    return id;
  };
}
