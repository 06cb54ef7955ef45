// Charts of how episodes went during training: one point for each step whose episodes were read.
import { trendFigures } from './trend-figures.js';
import { cutOff, premature, turnsInAll, type TrajectoryCounts } from '../transcripts/trajectory-analysis.js';

/** Shares are relative to the step's episodes. */
export interface TrajectoryPoint {
  step: number;
  turns: number;
  repeating: number;
  premature: number;
  cutOff: number;
}

/** `counts`: the counts of one step, which has at least one episode. */
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

/**
 * Empty if there is nothing to draw. An event that never happened gets no chart. `breaks`: steps from which on an environment is another one.
 */
export function trajectoryTrends(points: readonly TrajectoryPoint[], breaks: readonly number[]): string {
  if (points.length < 2) return '';
  return trendFigures(
    trends.flatMap(({ title, of, format }) => {
      const values = points.map((point) => ({ x: point.step, y: point[of] }));
      return values.some(({ y }) => y > 0) ? [{ title, points: values, format }] : [];
    }),
    breaks,
  );
}
