// All keys of the store; no other file spells a key. The run id is part of the key, so two timelines of a run share no key.
import type { Digest } from '../spec/records/parts.js';
import { BadKey } from './record-errors.js';

const keyLimitBytes = 512;

/** Throws `BadKey` unless both backends can hold `key`: see `ObjectStore`. */
export function checkKey(key: string): string {
  if (key.length === 0 || key.length > keyLimitBytes) {
    throw new BadKey(
      `key of ${key.length} bytes: "${key.slice(0, 80)}"; keys have 1 to ${keyLimitBytes} bytes`,
    );
  }
  if (!/^[A-Za-z0-9._~/=-]+$/.test(key)) {
    throw new BadKey(`key "${key}" may hold only letters, digits and . _ ~ / = -`);
  }
  for (const part of key.split('/')) {
    if (part === '') throw new BadKey(`key "${key}" has an empty part; no leading, trailing or double "/"`);
    if (part.startsWith('.'))
      throw new BadKey(`key "${key}" has the part "${part}"; no part starts with a dot`);
  }
  return key;
}

/** Throws `BadKey` unless `prefix` can begin a key; `''` stands for all keys. */
export function checkPrefix(prefix: string): string {
  if (prefix !== '') checkKey(prefix.endsWith('/') ? prefix.slice(0, -1) : prefix);
  return prefix;
}

/** Checks a user's name (of a run, project, model, suite, dataset, …) before it becomes part of a key. */
export function checkName(name: string, what: string): string {
  if (!/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/.test(name)) {
    throw new BadKey(
      `${what} "${name.slice(0, 80)}" cannot be used: 1 to 64 letters, digits, ".", "_" or "-", not starting with a dot`,
    );
  }
  return name;
}

/** A run id is `{name}` or, after rewinds, `{name}~{n}` with n ≥ 2. */
export function checkRunId(run: string): string {
  const match = /^(.*?)(?:~([1-9][0-9]{0,8}))?$/s.exec(run);
  if (match?.[2] === '1') throw new BadKey(`run id "${run}": the first timeline of a name has no "~1"`);
  checkName(match?.[1] ?? '', 'run name');
  return run;
}

/** Run id of the n-th timeline of a name; n starts at 1. */
export function runIdOf(name: string, n: number): string {
  checkName(name, 'run name');
  return n === 1 ? name : `${name}~${whole(n, 'timeline')}`;
}

/** The run id without its `~{n}`; also works on any string that ends in a run id. */
export function nameOfRun(run: string): string {
  return run.replace(/~[0-9]+$/, '');
}

/** A sweep id is `{project}/{name}`; its name may be longer than other names, as a schedule adds its start time. */
export function checkSweepId(sweep: string): string {
  if (/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$/.test(sweep)) return sweep;
  throw new BadKey(
    `sweep "${sweep.slice(0, 200)}" cannot be used: it is a project and a name of letters, digits, ".", "_" or "-", with a "/" between`,
  );
}

const runFolder = (run: string) => `runs/${checkRunId(run)}/`;
export const runKey = (run: string) => `${runFolder(run)}run.json`;
/** Reports are named by content: a later report of the same step may hold more (evaluations, above all), and both stay. */
export const reportKey = (run: string, step: number, sha256: Digest) =>
  `${runFolder(run)}reports/${padded(step, 6, 'step')}.${checkDigest(sha256, 'report').slice(0, 12)}.html`;
/** A chunk of transcripts that reports share, beside their pages; `name`: 16 digits of its content's sha256. */
export const reportTranscriptsKey = (run: string, name: string) => {
  if (!/^[0-9a-f]{16}$/.test(name))
    throw new BadKey(`transcripts "${name.slice(0, 80)}" cannot be used: the name must be 16 hex digits`);
  return `${runFolder(run)}reports/transcripts/${name}.js`;
};
export const ownersFolder = (run: string) => `${runFolder(run)}owners/`;
export const controlFolder = (run: string) => `${runFolder(run)}control/`;
export const refsFolder = (run: string) => `${runFolder(run)}refs/`;
/** `user`: a run id, or another name of the same form. */
export const refKey = (run: string, user: string) => `${refsFolder(run)}${checkRunId(user)}.json`;
export const collectionsFolder = (run: string) => `${runFolder(run)}gc/`;
/** Models that a Tinker server held for the run, in the order in which they were made (R33). */
export const instancesFolder = (run: string) => `${runFolder(run)}instances/`;
export const appliedFolder = (run: string) => `${runFolder(run)}applied/`;
/** Key of the record which says that the n-th of these models has taken a step's batch again. */
export const appliedKey = (run: string, n: number, step: number) =>
  `${appliedFolder(run)}${whole(n, 'instance')}/${padded(step, 6, 'step')}.json`;
/** States of a step that a Tinker server has saved (R36). */
export const savedStatesFolder = (run: string, step: number) =>
  `${runFolder(run)}states/${padded(step, 6, 'step')}/`;
export const noticesFolder = (run: string) => `${runFolder(run)}notices/`;
export const runEvaluationsFolder = (run: string) => `${runFolder(run)}evaluations/`;
/** The record that names the run's evaluation of this step and suite. */
export const runEvaluationKey = (run: string, step: number, suite: string) =>
  `${runEvaluationsFolder(run)}${padded(step, 6, 'step')}.${checkName(suite, 'suite name')}.json`;
export const namesFolder = (name: string) => `names/${checkName(name, 'run name')}/`;
/** Key of the n-th record of a sequence, n from 1. */
export const sequenceKey = (folder: string, n: number) => `${folder}${whole(n, 'sequence number')}.json`;

export const stepsFolder = (run: string) => `${runFolder(run)}steps/`;
export const stepFolder = (run: string, step: number) => `${stepsFolder(run)}${padded(step, 6, 'step')}/`;
export const planKey = (run: string, step: number) => `${stepFolder(run, step)}plan.json`;
export const wavesFolder = (run: string, step: number) => `${stepFolder(run, step)}waves/`;
export const waveKey = (run: string, step: number, wave: number) =>
  `${wavesFolder(run, step)}${whole(wave, 'wave')}.json`;
export const batchKey = (run: string, step: number) => `${stepFolder(run, step)}batch.safetensors`;
/** The batch's bytes, compressed when the step is folded (R23). */
export const foldedBatchKey = (run: string, step: number) => `${batchKey(run, step)}.gz`;
/** The trainer's log-probs of a batch; it is named for the batch, since a batch that is set aside is sealed again. */
export const rescoredKey = (run: string, step: number, batch: Digest) =>
  `${stepFolder(run, step)}rescored.${checkDigest(batch, 'batch').slice(0, 16)}.safetensors`;
export const updateKey = (run: string, step: number) => `${stepFolder(run, step)}update.json`;
export const episodesFolder = (run: string, step: number) => `${stepFolder(run, step)}episodes/`;
export const episodeKey = (run: string, step: number, slot: number, sample: number) =>
  `${episodesFolder(run, step)}${episodeName(slot, sample)}`;
/** The file that holds all episodes of a committed step after folding (R23). */
export const foldedEpisodesKey = (run: string, step: number) => `${stepFolder(run, step)}episodes.jsonl.gz`;
export const attemptsFolder = (run: string, step: number) => `${stepFolder(run, step)}attempts/`;
const activityFolder = (run: string, step: number, activity: string) =>
  `${attemptsFolder(run, step)}${checkName(activity, 'activity')}/`;
/** Folder of one attempt; its records are a sequence. */
export const attemptFolder = (run: string, step: number, activity: string, attempt: string) =>
  `${activityFolder(run, step, activity)}${checkName(attempt, 'attempt')}/`;

/** Evaluated states, one folder each. */
export const evaluationsRoot = 'evals/';
/** Suites of a state, one folder each. */
export const evaluationsOfState = (state: Digest) => `evals/${checkDigest(state, 'state')}/`;
const evaluationFolder = (state: Digest, suite: Digest) =>
  `evals/${checkDigest(state, 'state')}/${checkDigest(suite, 'suite')}/`;
export const evaluationSuiteKey = (state: Digest, suite: Digest) =>
  `${evaluationFolder(state, suite)}suite.json`;
export const evaluationResultKey = (state: Digest, suite: Digest) =>
  `${evaluationFolder(state, suite)}result.json`;
export const evaluationEpisodesFolder = (state: Digest, suite: Digest) =>
  `${evaluationFolder(state, suite)}episodes/`;
/** The file that holds all episodes of an evaluation after folding (R23). */
export const foldedEvaluationKey = (state: Digest, suite: Digest) =>
  `${evaluationFolder(state, suite)}episodes.jsonl.gz`;
/** `slot` is the task's index in the suite. */
export const evaluationEpisodeKey = (state: Digest, suite: Digest, slot: number, sample: number) =>
  `${evaluationEpisodesFolder(state, suite)}${episodeName(slot, sample)}`;

/** Folder of the projects that have sweeps, and of their tallies. */
export const sweepsRoot = 'sweeps/';
export const sweepsOfProject = (project: string) => `${sweepsRoot}${checkName(project, 'project')}/`;
/** `sweep`: `{project}/{name}` as in its workflow id; if a schedule started it, its start time follows the name. */
export const sweepFolder = (sweep: string) => `${sweepsRoot}${checkSweepId(sweep)}/`;
export const sweepKey = (sweep: string) => `${sweepFolder(sweep)}sweep.json`;
/** Comparisons are named by content: a sweep that is started again may compare more. */
export const comparisonKey = (sweep: string, sha256: Digest) =>
  `${sweepFolder(sweep)}comparison.${checkDigest(sha256, 'comparison').slice(0, 12)}.html`;
export const sweepResultsKey = (sweep: string, sha256: Digest) =>
  `${sweepFolder(sweep)}aggregated_results.${checkDigest(sha256, 'results').slice(0, 12)}.jsonl`;
export const tallyKey = (state: Digest, suite: Digest) =>
  `tallies/${checkDigest(state, 'state')}/${checkDigest(suite, 'suite')}.json`;

export interface CheckpointHome {
  project: string;
  model: string;
  run: string;
}
export const checkpointsFolder = ({ project, model, run }: CheckpointHome) =>
  `checkpoints/${checkName(project, 'project')}/${checkName(model, 'model name')}/${checkRunId(run)}/`;
export const checkpointFolder = (home: CheckpointHome, step: number) =>
  `${checkpointsFolder(home)}global_step_${whole(step, 'step')}/`;
export const checkpointManifestKey = (home: CheckpointHome, step: number) =>
  `${checkpointFolder(home, step)}manifest.json`;
export const checkpointFileKey = (home: CheckpointHome, step: number, path: string) =>
  checkKey(`${checkpointFolder(home, step)}${path}`);

/**
 * SkyRL's layout of dumped evaluations, with a subfolder for a step's second suite. As in SkyRL, `/` in an environment's key becomes `_`.
 */
export const trajectoriesFolder = (run: string, step: number, suite?: string) =>
  `trajectories/evals/${checkRunId(run)}/global_step_${whole(step, 'step')}/` +
  (suite === undefined ? '' : `${checkName(suite, 'suite name')}/`);
export const trajectoryKey = (run: string, step: number, envKey: string, suite?: string) =>
  `${trajectoriesFolder(run, step, suite)}${checkName(envKey.replaceAll('/', '_'), 'env_key')}.jsonl`;
export const trajectoryResultsKey = (run: string, step: number, suite?: string) =>
  `${trajectoriesFolder(run, step, suite)}aggregated_results.jsonl`;

const datasetFolder = (name: string, version: string) =>
  `datasets/${checkName(name, 'dataset name')}/${checkName(version, 'dataset version')}/`;
export const datasetManifestKey = (name: string, version: string) =>
  `${datasetFolder(name, version)}manifest.json`;
export const datasetFileKey = (name: string, version: string, path: string) =>
  checkKey(`${datasetFolder(name, version)}${path}`);

export const datasetsRoot = 'datasets/';
export const datasetVersionsFolder = (name: string) => `datasets/${checkName(name, 'dataset name')}/`;
/** What a dataset is prepared from. */
export const gatheredKey = (name: string, version: string) => `${datasetFolder(name, version)}gathered.json`;
const gatesFolder = (name: string, version: string) => `${datasetFolder(name, version)}gates/`;
export const taughtFolder = (name: string, version: string) => `${datasetFolder(name, version)}taught/`;
/** `task`: sha256 of the task's key. */
export const taughtKey = (name: string, version: string, task: Digest, sample: number) =>
  `${taughtFolder(name, version)}${checkDigest(task, 'task').slice(0, 32)}.${padded(sample, 3, 'sample')}.json`;
/** `task`: sha256 of the task's key, which may hold any character. */
export const gateKey = (name: string, version: string, task: Digest, gate: string) =>
  `${gatesFolder(name, version)}${checkDigest(task, 'task').slice(0, 32)}.${checkName(gate, 'gate')}.json`;

/** Weights of a supplied model; the engine computes their digest. */
const weightsFolder = (weights: Digest) => `weights/${checkDigest(weights, 'weights')}/`;
export const weightsManifestKey = (weights: Digest) => `${weightsFolder(weights)}manifest.json`;
export const weightsFileKey = (weights: Digest, path: string) => checkKey(`${weightsFolder(weights)}${path}`);

/** Tokenizer and chat template files, by content. */
export const assetKey = (sha256: Digest) => `assets/${checkDigest(sha256, 'asset')}`;

/** Key that readers use in place of a quarantined key (R24). */
export const replacementKey = (key: string, r: number) => `${key}.r${whole(r, 'replacement')}`;

/** The step that a folder name under `steps/` stands for (`000120/`), or null. */
export function parseStepFolder(name: string): number | null {
  return /^[0-9]{6,}\/$/.test(name) ? Number(name.slice(0, -1)) : null;
}

/** Run and step of an episode's key or of the folder of a step's episodes, or null. */
export function parseEpisodeKey(key: string): { run: string; step: number } | null {
  const match = /^runs\/([^/]+)\/steps\/([0-9]{6,})\/episodes(?:\/[^/]*)?$/.exec(key);
  return match ? { run: match[1] as string, step: Number(match[2]) } : null;
}

/** State and suite in the key of an evaluation's folder, its folder of episodes (each with `/`) or an episode; null for any other key. */
export function parseEvaluationKey(key: string): { state: Digest; suite: Digest; rest: string } | null {
  const match = /^evals\/([0-9a-f]{64})\/([0-9a-f]{64})\/((?:episodes\/.*)?)$/.exec(key);
  return match && { state: match[1] as string, suite: match[2] as string, rest: match[3] as string };
}

function episodeName(slot: number, sample: number): string {
  return `${padded(slot, 5, 'slot')}.${padded(sample, 3, 'sample')}.json.gz`;
}

function checkDigest(digest: string, what: string): string {
  if (!/^[0-9a-f]{64}$/.test(digest)) {
    throw new BadKey(`${what} "${digest.slice(0, 80)}" is not a sha256 (64 lower-case hex digits)`);
  }
  return digest;
}

function padded(value: number, digits: number, what: string): string {
  return String(whole(value, what)).padStart(digits, '0');
}

function whole(value: number, what: string): number {
  if (!Number.isSafeInteger(value) || value < 0)
    throw new BadKey(`${what} ${value} is not a whole number ≥ 0`);
  return value;
}
