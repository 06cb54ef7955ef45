// Finds the valid name that a mistyped name probably meant.

/**
 * The most similar of `names`; null if none is similar enough. A third of the word's letters may differ, or two in a word of more than four
 * letters: `fork` must not become `top_k`. Ignores case and separators.
 */
export function nearestName(word: string, names: readonly string[]): string | null {
  let best: { name: string; edits: number } | null = null;
  for (const name of names) {
    const edits = editDistance(plainName(word), plainName(name));
    if (best === null || edits < best.edits) best = { name, edits };
  }
  if (best === null) return null;
  const letters = plainName(word).length;
  const most = Math.max(Math.min(2, Math.floor((letters - 1) / 2)), Math.floor(letters / 3));
  return best.edits <= most ? best.name : null;
}

/** Number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i += 1) {
    const current = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replace = at(previous, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let edits = Math.min(replace, at(previous, j) + 1, at(current, j - 1) + 1);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        edits = Math.min(edits, at(beforePrevious, j - 2) + 1);
      }
      current.push(edits);
    }
    beforePrevious = previous;
    previous = current;
  }
  return at(previous, b.length);
}

/** The name without capitals and separators. */
export function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[-_\s]/g, '');
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Infinity;
}
