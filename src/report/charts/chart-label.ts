// Places the value of a dot where it can be read: beside the dot, and not over a line.
import type { Box, Place } from './svg.js';

interface Label extends Place {
  /** SVG's `text-anchor`. */
  anchor: 'start' | 'end';
}

interface DrawnLine {
  points: readonly Place[];
  /** Cost of covering this line, per unit of its covered length. */
  weight: number;
}

const textHeight = 10;
const characterWidth = 7.5;
/** Margin around the text, so that it does not touch its neighbours. */
const air = 3;
/** Cost of one unit of vertical distance, in units of covered line. A label far from its dot seems to belong to another dot. */
const farness = 0.3;
/** Distance between the points at which a line is sampled. */
const stride = 2;

/**
 * The label position around `dot`, within `plot`, with the lowest cost. Positions are tried in order of preference; the first one wins a
 * tie.
 */
export function clearest(dot: Place, text: string, plot: Box, lines: readonly DrawnLine[]): Label {
  const width = text.length * characterWidth;
  const candidates: Label[] = [];
  for (const dy of [4, 20, -11, 34, -25]) {
    candidates.push(
      { x: dot.x + 9, y: dot.y + dy, anchor: 'start' },
      { x: dot.x - 9, y: dot.y + dy, anchor: 'end' },
    );
  }
  const costs = candidates.map((label) => {
    const box = boxOf(label, width);
    const inside =
      box.left >= plot.left && box.right <= plot.right && box.top >= plot.top && box.bottom <= plot.bottom;
    if (!inside) return Infinity;
    const hidden = lines.reduce((sum, line) => sum + line.weight * covered(line.points, box), 0);
    return hidden + farness * Math.abs(label.y - dot.y);
  });
  const best = costs.indexOf(Math.min(...costs));
  return candidates[best] ?? { ...dot, anchor: 'start' };
}

function boxOf({ x, y, anchor }: Label, width: number): Box {
  const left = anchor === 'start' ? x : x - width;
  return { left: left - air, right: left + width + air, top: y - textHeight - air, bottom: y + 3 + air };
}

/** Approximate length of the line inside `box`. */
function covered(points: readonly Place[], box: Box): number {
  let length = 0;
  for (const [index, to] of points.entries()) {
    const from = points[index - 1] ?? to;
    if (Math.max(from.x, to.x) < box.left || Math.min(from.x, to.x) > box.right) continue;
    const looks = Math.max(1, Math.ceil(Math.hypot(to.x - from.x, to.y - from.y) / stride));
    for (let look = 0; look < looks; look++) {
      const x = from.x + ((to.x - from.x) * look) / looks;
      const y = from.y + ((to.y - from.y) * look) / looks;
      if (x >= box.left && x <= box.right && y >= box.top && y <= box.bottom) length += stride;
    }
  }
  return length;
}
