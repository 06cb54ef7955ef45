// `longhaul transcripts RUN`: episodes as conversations, from a step's rollouts or from the newest evaluation.
import { Option, type Command } from 'commander';
import { DatasetCache } from '../activities/dataset-cache.js';
import { RunDataCache } from '../activities/run-data.js';
import { inParallel, readEvaluationEpisodes, readHistory } from '../report/run-history.js';
import { pickTranscripts, toTranscript, type Transcript } from '../report/transcripts.js';
import type { EpisodeRecord } from '../spec/records.js';
import { episodesFolder } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { openStore } from '../store/open-store.js';
import { readRecord } from '../store/records.js';
import { storeOption, withOutput } from './output.js';

interface TranscriptsOptions {
  store: string;
  step?: number;
  verdict?: 'pass' | 'fail' | 'unknown';
  limit: number;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('transcripts')
    .argument('<run>', 'run id, e.g. quickstart')
    .description('print episodes as conversations: of the newest evaluation, or of one training step')
    .addOption(storeOption())
    .option('--step <n>', "a training step's rollouts instead", wholeNumber)
    .addOption(new Option('--verdict <verdict>', 'only these').choices(['pass', 'fail', 'unknown']))
    .option('--limit <n>', 'how many of each verdict', wholeNumber, 3)
    .option('--json', 'one JSON object a line')
    .action(
      withOutput(async (run: string, options: TranscriptsOptions) => {
        const store = await openStore(options.store);
        const { tokenizer } = await new RunDataCache(store, new DatasetCache(store)).get(run);
        const episodes =
          options.step === undefined
            ? await newestEvaluation(store, run)
            : await stepEpisodes(store, run, options.step);
        const transcripts = pickTranscripts(episodes, options.limit)
          .map((episode) => toTranscript(episode, (tokens) => tokenizer.decode(tokens)))
          .filter((transcript) => options.verdict === undefined || transcript.verdict === options.verdict);
        for (const transcript of transcripts)
          console.log(options.json ? JSON.stringify(transcript) : asText(transcript));
        if (transcripts.length === 0) console.error(`${run} has no such episodes.`);
      }),
    );
}

function wholeNumber(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new Error(`"${text}" is not a whole number ≥ 0`);
  return value;
}

async function newestEvaluation(store: ObjectStore, run: string): Promise<EpisodeRecord[]> {
  const newest = (await readHistory(store, run)).evaluations.at(-1);
  return newest ? readEvaluationEpisodes(store, newest) : [];
}

async function stepEpisodes(store: ObjectStore, run: string, step: number): Promise<EpisodeRecord[]> {
  const folder = episodesFolder(run, step);
  const records = await inParallel(await store.listFolder(folder), (name) =>
    readRecord(store, `${folder}${name}`, 'episode'),
  );
  return records.filter((episode) => episode !== null);
}

function asText(transcript: Transcript): string {
  const head = `── ${transcript.verdict} · ${transcript.task_key} · sample ${transcript.sample} · ${transcript.reason} · ended by ${transcript.stop_reason}`;
  const body = transcript.parts.map((part) => `${part.who}:\n${part.text.replace(/^/gm, '  ')}`);
  return [head, ...body, ''].join('\n');
}
