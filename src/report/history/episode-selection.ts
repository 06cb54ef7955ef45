// Chooses the episodes that a report reads: all of them if they are few, else the newest evaluations and training steps spread evenly.
import { type EvaluationFigure, episodesOf } from './evaluations.js';
import { newestEvaluation, type RunHistory } from './run-history.js';

export type EpisodeSource =
  | {
      kind: 'evaluation';
      name: string;
      step: number;
      episodes: number;
      figure: EvaluationFigure;
      isNewest: boolean;
    }
  /** `run`: the run of the timeline that took the step. */
  | { kind: 'training'; name: 'train'; run: string; step: number; episodes: number };

export interface EpisodeSelection {
  /** The newest evaluation first, then the other evaluations from new to old, then training steps in order. */
  sources: EpisodeSource[];
  /** These three fields count all steps, episodes and evaluations in the run's records, selected or not. */
  trainingSteps: number;
  trainingEpisodes: number;
  evaluations: number;
}

type History = Pick<RunHistory, 'updates' | 'evaluations'>;

/** `limit`: episodes in all. Evaluations get half of them, or more if training needs less. The newest evaluation is always included. */
export function selectEpisodes(history: History, limit: number): EpisodeSelection {
  const training = history.updates.flatMap(({ identity: { run, step, outcomes } }): EpisodeSource[] => {
    const episodes = outcomes.reduce((sum, group) => sum + group.length, 0);
    return episodes === 0 ? [] : [{ kind: 'training', name: 'train', run, step, episodes }];
  });
  const trainingEpisodes = countOf(training);
  const evaluations = evaluationSources(history);
  const room = Math.max(limit / 2, limit - trainingEpisodes);
  let taken = 0;
  const shown = evaluations.filter(({ episodes }, index) => {
    if (index > 0 && taken + episodes > room) return false;
    taken += episodes;
    return true;
  });
  return {
    sources: [...shown, ...spread(training, Math.max(0, limit - taken))],
    trainingSteps: training.length,
    trainingEpisodes,
    evaluations: evaluations.length,
  };
}

function evaluationSources({ evaluations }: History): EpisodeSource[] {
  const newest = newestEvaluation(evaluations);
  const byAge = [...evaluations].reverse();
  const ordered = newest ? [newest, ...byAge.filter((figure) => figure !== newest)] : byAge;
  const names = new Set<string>();
  return ordered.map((figure) => {
    const { suite_name, suite } = figure.result;
    const plain = `${suite_name}.${figure.step}`;
    // Timelines with other data may have played another suite of the same name on the same state.
    const name = names.has(plain) ? `${suite_name}-${suite.slice(0, 8)}` : suite_name;
    names.add(plain);
    const isNewest = figure === newest;
    return { kind: 'evaluation', name, step: figure.step, episodes: episodesOf(figure), figure, isNewest };
  });
}

/** As many sources as fit the limit, spread as evenly as possible, always with the last one. */
function spread(sources: readonly EpisodeSource[], limit: number): EpisodeSource[] {
  if (countOf(sources) <= limit) return [...sources];
  for (
    let count = Math.min(sources.length, Math.max(1, Math.floor(limit)));
    count > 1;
    count = Math.floor(count * 0.97)
  ) {
    const chosen = Array.from(
      { length: count },
      (_, index) => sources[Math.round((index * (sources.length - 1)) / (count - 1))] as EpisodeSource,
    );
    if (countOf(chosen) <= limit) return chosen;
  }
  return sources.slice(-1);
}

function countOf(sources: readonly EpisodeSource[]): number {
  return sources.reduce((sum, { episodes }) => sum + episodes, 0);
}
