// Says in words that an evaluation has no result yet, and why.
import { mostFrequentReason, reasonText } from '../rl/grades.js';
import type { UnfinishedEvaluation } from '../store/evaluations/run-evaluations.js';

/** `evaluation final of step 0 has no result yet: of 3 episodes 3 have an unknown outcome, most often tracker: grade: …` */
export function unfinishedText({ step, suite_name, episodes }: UnfinishedEvaluation): string {
  const head = `evaluation ${suite_name} of step ${step} has no result yet: of ${episodes.length} episodes`;
  const unknown = episodes.filter(({ outcome }) => outcome.status === 'unknown').length;
  const most = mostFrequentReason(episodes);
  const why = most === null ? '' : `, most often ${reasonText(most)}`;
  return `${head} ${unknown} ${unknown === 1 ? 'has' : 'have'} an unknown outcome${why}`;
}
