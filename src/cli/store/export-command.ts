// `longhaul export RUN[@STEP] --to DIR`: writes a run's model as a folder that transformers can open.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import { type ExportedModel, exportModel, requireNewFolder } from '../../policy/model-export.js';
import { nativePolicyHolder } from '../../policy/native-state-keeper.js';
import { readAsset } from '../../data/run-data.js';
import { isMultimodal } from '../../models/hf-config.js';
import { configFile, readJson } from '../../models/model-files.js';
import { findModel } from '../../models/model-source.js';
import { whole } from '../../report/format.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { checkpointDataKey, listCheckpoints } from '../../store/runs/checkpoints.js';
import { lastCommittedStep, readRun } from '../../store/runs/run-records.js';
import { openEngineOf } from '../engine/engine-model.js';
import { noteNewerTimeline, parsePlace } from '../run-at-step.js';
import {
  folderOption,
  inFolder,
  openStoreOf,
  requireRun,
  type StoreFlags,
  storeOption,
  withOutput,
} from '../output.js';

interface ExportFlags extends StoreFlags {
  to: string;
  peft?: boolean;
  dtype: 'f32' | 'bf16';
  json?: boolean;
}

interface Exported extends ExportedModel {
  run: string;
  step: number;
}

export function register(program: Command): void {
  program
    .command('export')
    .argument('<run@step>', 'run id and committed step, e.g. quickstart@20; without @STEP the last one')
    .description('write a run’s model as a Hugging Face folder, with tokenizer and chat template')
    .addOption(storeOption())
    .addOption(folderOption())
    .requiredOption('--to <dir>', 'folder to write; must not exist yet')
    .option(
      '--peft',
      'export only the adapters of a LoRA run, in PEFT format; without this option they are merged into the weights',
    )
    .addOption(
      new Option('--dtype <type>', 'format of the weights: f32 keeps every bit, bf16 is half as large')
        .choices(['f32', 'bf16'])
        .default('f32'),
    )
    .option('--json', 'print the folder’s files as JSON')
    .action(
      withOutput(async (text: string, flags: ExportFlags, command: Command) => {
        const { name: run, step } = parsePlace(text);
        const store = await openStoreOf(command, flags);
        await requireRun(store, run);
        // Checked first, because restoring the state may take minutes.
        await requireNewFolder(flags.to);
        const exported = await exportRun(store, run, await committedStep(store, run, step), flags);
        console.log(flags.json ? JSON.stringify(exported) : exportedText(exported));
        const place = step === null ? 'TIMELINE' : `TIMELINE@${step}`;
        await noteNewerTimeline(store, run, `longhaul export ${place} --to DIR${inFolder(flags)}`);
      }),
    );
}

async function committedStep(store: ObjectStore, run: string, step: number | null): Promise<number> {
  const last = await lastCommittedStep(store, run);
  if (last < 0) throw new Error(`${run} has no base model yet: there is nothing to export`);
  if (step !== null && step > last)
    throw new Error(`step ${step} of ${run} is not committed: its last committed step is ${last}`);
  return step ?? last;
}

/** Restores the state on an engine of its own: loads the newest checkpoint before it and applies the logged batches after that. */
async function exportRun(
  store: ObjectStore,
  run: string,
  step: number,
  flags: ExportFlags,
): Promise<Exported> {
  const record = await readRun(store, run);
  if (record.spec.model.served) throw new Error(await whereAdaptersAre(store, record));
  const { lora, path, architecture } = record.spec.model;
  if (flags.peft && !lora)
    throw new Error(`${run} trains all weights: it has no adapters to export with --peft`);
  if (flags.peft && path !== undefined) await refuseOtherBase(run, path);
  const tokenizer = await readAsset(store, record.tokenizer);
  const template = await readAsset(store, record.chat_template);
  const folder = await mkdtemp(join(tmpdir(), 'longhaul-export-'));
  const engine = await openEngineOf(store, run);
  const log = (message: string): void => console.error(message);
  try {
    const holder = nativePolicyHolder({ store, engine, folder, log });
    return await holder.withState(run, step, 'visitor', async (state) => {
      const exported = await exportModel(engine, {
        ...{ state, to: flags.to, tokenizer, template, eosTokens: record.eos_tokens ?? [] },
        dtype: flags.dtype === 'bf16' ? 'BF16' : 'F32',
        adapters: flags.peft ? 'peft' : 'merged',
        maxPositionEmbeddings: architecture?.max_position_embeddings ?? null,
        ...(path === undefined ? {} : { base_model: path }),
      });
      return { ...exported, run, step };
    });
  } finally {
    await engine.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Throws if the run's adapters do not fit the folder that the run began with: because the folder's own adapter is merged into the weights below
 * them, or because its modules have other names.
 */
async function refuseOtherBase(run: string, path: string): Promise<void> {
  const model = await findModel(path).catch(() => null);
  if (model?.adapter)
    throw new Error(
      `${run} began with the adapter in ${path}, which is merged into the weights below its own adapters: export it without --peft`,
    );
  const config = model && (await readJson(join(model.base, configFile)).catch(() => null));
  if (config && isMultimodal(config))
    throw new Error(
      `${run} began with the language model of the multimodal model in ${path}, whose modules have other names: export it without --peft`,
    );
}

/** A Tinker server has the base weights, and the store has the adapters as the server made them. */
async function whereAdaptersAre(store: ObjectStore, record: RunRecord): Promise<string> {
  const steps = await listCheckpoints(store, record);
  const keys = await Promise.all(steps.map((step) => checkpointDataKey(store, record, step)));
  const where =
    keys.length === 0
      ? 'no checkpoint is in the store yet'
      : `unpack one of these archives from ${store.address}:\n  ${keys.join('\n  ')}`;
  return `${record.run} trains adapters on a Tinker server; its checkpoints hold them in PEFT format: ${where}`;
}

function exportedText({ run, step, path, state, files }: Exported): string {
  const lines = files.map((file) => `  ${whole(file.size).padStart(16)} bytes  ${file.path}`);
  return [`${run} after step ${step}, state ${state}`, path, ...lines].join('\n');
}
