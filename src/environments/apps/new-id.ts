// Ids of rows that tools create.
import { Draw } from './random.js';

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
