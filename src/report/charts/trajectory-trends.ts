// How episodes went over training, one point for each step that was read.
import { trendFigures } from './trend-figures.js';
import { cutOff, premature, turnsInAll, type TrajectoryCounts } from '../transcripts/trajectory-analysis.js';

/** Shares are of the step's episodes. */
export interface TrajectoryPoint {
  step: number;
  turns: number;
  repeating: number;
  premature: number;
  cutOff: number;
}

/** `counts`: of one step, with at least one episode. */
export function trajectoryPoint(step: number, counts: TrajectoryCounts): TrajectoryPoint {
  const { episodes } = counts;
  return {
    step,
    turns: turnsInAll(counts) / episodes,
    repeating: counts.repeating / episodes,
    premature: premature(counts) / episodes,
    cutOff: cutOff(counts) / episodes,
  };
}

const shareText = (value: number): string => `${Number((value * 100).toPrecision(2))} %`;

const trends: {
  title: string;
  of: Exclude<keyof TrajectoryPoint, 'step'>;
  format: (value: number) => string;
}[] = [
  { title: 'Turns per episode', of: 'turns', format: (value) => String(Number(value.toPrecision(3))) },
  { title: 'Episodes with repeated calls', of: 'repeating', format: shareText },
  { title: 'Episodes with a premature done', of: 'premature', format: shareText },
  { title: 'Episodes cut off by a limit', of: 'cutOff', format: shareText },
];

/** Empty if there is nothing to draw; events that never happened have no chart. */
export function trajectoryTrends(points: readonly TrajectoryPoint[]): string {
  if (points.length < 2) return '';
  return trendFigures(
    trends.flatMap(({ title, of, format }) => {
      const values = points.map((point) => ({ x: point.step, y: point[of] }));
      return values.some(({ y }) => y > 0) ? [{ title, points: values, format }] : [];
    }),
  );
}
