// Episodes as conversations that a person can read.
import type { EpisodeRecord } from '../spec/records.js';

export interface TranscriptPart {
  who: 'prompt' | 'model' | 'environment';
  text: string;
}

export interface Transcript {
  task_key: string;
  env_key: string;
  slot: number;
  sample: number;
  verdict: 'pass' | 'fail' | 'unknown';
  reason: string;
  stop_reason: string;
  parts: TranscriptPart[];
}

/** `decode` turns token ids into text with special tokens shown. */
export function toTranscript(episode: EpisodeRecord, decode: (tokens: number[]) => string): Transcript {
  const parts: TranscriptPart[] = [
    { who: 'prompt', text: decode(episode.tokens.slice(0, episode.prompt_length)) },
  ];
  let position = episode.prompt_length;
  for (const turn of episode.turns) {
    if (turn.start > position)
      parts.push({ who: 'environment', text: decode(episode.tokens.slice(position, turn.start)) });
    parts.push({ who: 'model', text: decode(episode.tokens.slice(turn.start, turn.end)) });
    position = turn.end;
  }
  if (position < episode.tokens.length)
    parts.push({ who: 'environment', text: decode(episode.tokens.slice(position)) });
  const { outcome } = episode;
  return {
    task_key: episode.task_key,
    env_key: episode.env_key,
    slot: episode.slot,
    sample: episode.sample,
    verdict: outcome.status === 'unknown' ? 'unknown' : outcome.value > 0 ? 'pass' : 'fail',
    reason: outcome.status === 'unknown' ? outcome.reason : `reward ${outcome.value}`,
    stop_reason: episode.stop_reason,
    parts,
  };
}

/** Up to `each` of every verdict, spread over environments; failures first, since they teach more. */
export function pickTranscripts(episodes: EpisodeRecord[], each: number): EpisodeRecord[] {
  const verdictOf = (episode: EpisodeRecord): string =>
    episode.outcome.status === 'unknown' ? 'unknown' : episode.outcome.value > 0 ? 'pass' : 'fail';
  return ['fail', 'unknown', 'pass'].flatMap((verdict) => {
    const candidates = episodes.filter((episode) => verdictOf(episode) === verdict);
    const byEnvironment = new Map<string, EpisodeRecord[]>();
    for (const episode of candidates) {
      byEnvironment.set(episode.env_key, [...(byEnvironment.get(episode.env_key) ?? []), episode]);
    }
    const rows = [...byEnvironment.values()];
    const picked: EpisodeRecord[] = [];
    for (let index = 0; picked.length < Math.min(each, candidates.length); index++) {
      for (const row of rows) {
        const episode = row[index];
        if (episode && picked.length < each) picked.push(episode);
      }
    }
    return picked;
  });
}
