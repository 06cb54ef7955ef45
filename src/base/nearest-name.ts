// Finds the valid name that a mistyped name probably meant.

/** The most similar of `names`, at most a third of the word's length in edits away, or null. Ignores case and separators. */
export function nearestName(word: string, names: readonly string[]): string | null {
  let best: { name: string; edits: number } | null = null;
  for (const name of names) {
    const edits = editDistance(plain(word), plain(name));
    if (best === null || edits < best.edits) best = { name, edits };
  }
  return best !== null && best.edits <= Math.max(2, Math.floor(word.length / 3)) ? best.name : null;
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

function plain(name: string): string {
  return name.toLowerCase().replaceAll(/[-_\s]/g, '');
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Infinity;
}
