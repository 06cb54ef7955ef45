// Opaque ids of the rows of a world.
import { Draw } from './random.js';

/** Draws ids that are all different. */
export function opaqueIds(draw: Draw): (prefix: string) => string {
  const taken = new Set<string>();
  return (prefix) => {
    let id = draw.opaqueId(prefix);
    while (taken.has(id)) id = draw.opaqueId(prefix);
    taken.add(id);
    return id;
  };
}

/** An id for a new row of `table`, which has `count` rows: the same calls give the same ids in every episode of the task. */
export function newId(
  taskKey: string,
  prefix: string,
  table: string,
  count: number,
  isTaken: (id: string) => boolean,
): string {
  const draw = new Draw(`${taskKey}/new/${table}/${count}`);
  for (;;) {
    const id = draw.opaqueId(prefix);
    if (!isTaken(id)) return id;
  }
}
