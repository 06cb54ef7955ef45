// `longhaul transcripts RUN`: shows episodes as conversations, from a step's rollouts or from the newest evaluation.
import { Option, type Command } from 'commander';
import { DatasetCache } from '../../data/dataset-cache.js';
import { RunDataCache } from '../../data/run-data.js';
import { newestEvaluation, readHistory } from '../../report/history/run-history.js';
import { unfinishedText } from '../../report/history/evaluations.js';
import {
  pickTranscripts,
  readableResult,
  transcriptReader,
  verdictOf,
  type Message,
  type Transcript,
} from '../../report/transcripts/transcripts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { readEvaluationEpisodes, readStepEpisodes } from '../../store/runs/episodes.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { timelineOf } from '../../store/runs/run-records.js';
import { readUnfinishedEvaluation } from '../../store/evaluations/run-evaluations.js';
import { noteNewerTimeline } from '../run-at-step.js';
import {
  folderOption,
  inFolder,
  openStoreOf,
  printable,
  requireRun,
  type StoreFlags,
  storeOption,
  wholeNumber,
  withOutput,
} from '../output.js';

interface TranscriptsOptions extends StoreFlags {
  step?: number;
  verdict?: 'pass' | 'fail' | 'unknown';
  limit: number;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('transcripts')
    .argument('<run>', 'run id, e.g. quickstart')
    .description('print the episodes of the newest evaluation, or of one training step, as conversations')
    .addOption(storeOption())
    .addOption(folderOption())
    .option('--step <n>', "a training step's rollouts instead", wholeNumber(1))
    .addOption(new Option('--verdict <verdict>', 'only these').choices(['pass', 'fail', 'unknown']))
    .option('--limit <n>', 'how many of each verdict', wholeNumber(1), 3)
    .option('--json', 'one JSON object a line')
    .action(
      withOutput(async (run: string, options: TranscriptsOptions, command: Command) => {
        const stored = await openStoreOf(command, options);
        await requireRun(stored, run);
        const store = await openRunView(stored, run);
        const toTranscript = transcriptReader(
          await new RunDataCache(store, new DatasetCache(store)).get(run),
        );
        const episodes =
          options.step === undefined
            ? await evaluationEpisodes(store, run)
            : await readStepEpisodes(store, await timelineOf(store, run, options.step), options.step);
        const wanted = episodes.filter(
          (episode) => options.verdict === undefined || verdictOf(episode) === options.verdict,
        );
        const transcripts = pickTranscripts(wanted, options.limit).map(toTranscript);
        for (const transcript of transcripts)
          console.log(options.json ? jsonOf(transcript) : printable(asText(transcript)));
        if (episodes.length === 0)
          throw new Error(
            options.step === undefined
              ? `${run} has no evaluation yet; rollouts of a step: longhaul transcripts ${run} --step N${inFolder(options)}`
              : `step ${options.step} of ${run} has no episodes: it is a supervised step, or not collected yet`,
          );
        await noteNewerTimeline(store, run, `longhaul transcripts TIMELINE${inFolder(options)}`);
        if (transcripts.length === 0)
          console.error(`None of ${episodes.length} episodes has the verdict ${options.verdict ?? ''}.`);
      }),
    );
}

async function evaluationEpisodes(store: ObjectStore, run: string): Promise<EpisodeRecord[]> {
  const newest = newestEvaluation((await readHistory(store, run)).evaluations);
  const unfinished = await readUnfinishedEvaluation(store, run);
  if (unfinished && unfinished.episodes.length > 0 && unfinished.step >= (newest?.step ?? 0)) {
    console.error(printable(unfinishedText(unfinished)));
    return unfinished.episodes;
  }
  return newest ? readEvaluationEpisodes(store, newest) : [];
}

const speakers: Record<Message['role'], string> = {
  system: 'system prompt',
  user: 'task',
  assistant: 'model',
  environment: 'environment',
};

function asText(transcript: Transcript): string {
  const { verdict, task_key, sample, reason, stop_reason, turns } = transcript;
  const head = `── ${verdict} · ${task_key} · sample ${sample} · ${reason} · ${turns} turns, ended by ${stop_reason}`;
  const body = transcript.messages.map(
    (message) => `${speakers[message.role]}\n${textOf(message).replace(/^/gm, '  ')}`,
  );
  return [head, ...body, ''].join('\n');
}

/** Segments are for people: programs get each turn's text. */
function jsonOf(transcript: Transcript): string {
  return JSON.stringify(transcript, (key, value: unknown) => (key === 'segments' ? undefined : value));
}

function textOf(message: Message): string {
  if (message.role === 'environment') return readableResult(message.text);
  if (message.role !== 'assistant') return message.text;
  return message.segments
    .map((segment) => {
      if (segment.kind === 'call')
        return `→ ${segment.name}(${segment.arguments.map(([name, value]) => `${name}=${value}`).join(', ')})`;
      if (segment.kind === 'malformed') return `→ no valid tool call: ${segment.text}`;
      return segment.kind === 'done' ? 'done' : segment.text;
    })
    .join('\n');
}
