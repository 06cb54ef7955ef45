// Searches by words, in SQL for tools and in memory for oracles.
import type { Cell, Row } from './table.js';

const maxWords = 8;

function wordsOf(query: string): string[] {
  return query.toLowerCase().split(/\s+/).filter(Boolean).slice(0, maxWords);
}

/** A condition that holds if `column` has all words of the query, and its values. */
export function hasWords(column: string, query: string): { where: string; values: Cell[] } {
  const words = wordsOf(query);
  const where = words.map(() => `instr(' ' || lower(${column}) || ' ', ?) > 0`).join(' AND ');
  return { where, values: words.map((word) => ` ${word} `) };
}

/** The ids, in order, of the rows with all words of the query in the column `place`. */
export function idsWithWords(rows: readonly Row[], place: number, query: string): string[] {
  const words = wordsOf(query);
  return rows
    .filter((row) => words.every((word) => ` ${String(row[place]).toLowerCase()} `.includes(` ${word} `)))
    .map(([id]) => String(id))
    .sort();
}
