// Resolves the files that a run spec names: files that a model folder supplies, and relative paths.
import { existsSync } from 'node:fs';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import type { SpecProblem } from './invalid-spec.js';
import type { ModelSpec, RunSpec } from './run-spec.js';

/** Files of a model folder that are used if the spec names no other files. */
const ownFiles = { tokenizer: 'tokenizer.json', chat_template: 'chat_template.jinja' } as const;
type OwnFile = keyof typeof ownFiles;

export function isInBucket(path: string): boolean {
  return path.startsWith('s3://');
}

/** `openenv+http://host:port/ENV?split=train&held_out=test&env_key=KEY&headers_env=NAME`: tasks that a server lists. */
export function isOnServer(path: string): boolean {
  return /^openenv\+https?:\/\//.test(path);
}

/**
 * Fills in the model folder's tokenizer and chat template. A path that neither the spec nor the folder gives is empty;
 * `combinationProblems` reports it.
 */
export function withModelFiles<Model extends Pick<ModelSpec, 'path'> & Partial<Pick<ModelSpec, OwnFile>>>(
  model: Model,
): Model & Pick<ModelSpec, OwnFile> {
  const { path } = model;
  const own = (file: string): string => (path === undefined ? '' : join(path, file));
  return {
    ...model,
    tokenizer: model.tokenizer ?? own(ownFiles.tokenizer),
    chat_template: model.chat_template ?? own(ownFiles.chat_template),
  };
}

/** The path, absolute if it is relative to the spec's file and no object in a bucket. Adds to `problems` if it cannot be, or is missing. */
export function withAbsolutePath(
  key: string,
  path: string,
  file: string | undefined,
  problems: SpecProblem[],
  fix = 'relative paths start at the folder of the spec file',
): string {
  if (path === '' || isAbsolute(path) || isInBucket(path) || isOnServer(path)) return path;
  if (/^(?:data\.)?tasks$/.test(key) && /^(?:openenv|https?):\/\//.test(path) && !hubPath.test(path)) {
    problems.push({
      path: key,
      problem: `"${path}" is no file`,
      fix: `for a server’s tasks write openenv+${path.replace(/^openenv/, 'http')}`,
    });
    return path;
  }
  if (file !== undefined) {
    const resolved = resolve(dirname(file), path);
    // Only a relative path must exist here: an absolute one may name a file on the machine that trains.
    if (!existsSync(resolved))
      problems.push({
        path: key,
        problem: `there is no file ${resolved}`,
        fix: [...hubHint(key, path, file), fix].join('; '),
      });
    return resolved;
  }
  problems.push({
    path: key,
    problem: `"${path}" is relative, but there is no spec file that it could be relative to`,
    fix: 'give an absolute path, or start from `longhaul spec SPEC`',
  });
  return path;
}

/** How to get what the path may name on the Hugging Face Hub: `Qwen/Qwen3-0.6B`, its address, or `hf://…`. */
function hubHint(key: string, path: string, file: string): string[] {
  const [, prefix = '', id = ''] = hubPath.exec(path) ?? [];
  if (id === '' || /\.(arrow|csv|gz|jinja|jsonl?|parquet|safetensors|tsv|txt|ya?ml)$/.test(id)) return [];
  const named = prefix === '' ? `if ${id} is on the Hugging Face Hub` : 'it is on the Hugging Face Hub';
  if (key.startsWith('data.'))
    return [`${named}, write its rows to a file: datasets.load_dataset('${id}', …).to_json('tasks.jsonl')`];
  const folder = join('models', id.split('/').at(-1) ?? id);
  const target = join(dirname(resolve(file)), folder);
  const [only, write] =
    key === 'model.path' ? ['', folder] : [` ${ownFileOf(key)}`, join(folder, ownFileOf(key))];
  return [`${named}: \`hf download ${id}${only} --local-dir ${target}\`, and write ${key}: ${write}`];
}

const hubPath =
  /^(hf:\/\/|(?:https?:\/\/)?huggingface\.co\/)?(?:datasets\/)?([a-z0-9][\w.-]*\/[a-z0-9][\w.-]*)\/?$/i;

function ownFileOf(key: string): string {
  return ownFiles[key.replace('model.', '') as OwnFile] ?? '';
}

/** Makes all paths absolute: processes with other working folders use the spec, and a relative path would name another file there. */
export function withAbsolutePaths(spec: RunSpec, file: string | undefined, problems: SpecProblem[]): RunSpec {
  const absolute = (key: string, path: string, fix?: string): string =>
    withAbsolutePath(key, path, file, problems, fix);
  const { tasks, demonstrations } = spec.data;
  const { path } = spec.model;
  const folder =
    path === undefined
      ? undefined
      : absolute(
          'model.path',
          path,
          'relative paths start at the folder of the spec file; to make such a folder with random weights: ' +
            '`longhaul engine new SPEC --to DIR`',
        );
  /**
   * A model folder's own file is not checked here: the code that reads the folder also finds a chat template in `tokenizer_config.json`.
   */
  const modelFile = (key: OwnFile): string => {
    const own = path !== undefined && spec.model[key] === join(path, ownFiles[key]);
    return own ? join(folder ?? path, ownFiles[key]) : absolute(`model.${key}`, spec.model[key]);
  };
  return {
    ...spec,
    model: {
      ...spec.model,
      ...(folder === undefined ? {} : { path: folder }),
      tokenizer: modelFile('tokenizer'),
      chat_template: modelFile('chat_template'),
    },
    data: {
      ...spec.data,
      ...(tasks === undefined ? {} : { tasks: absolute('data.tasks', tasks) }),
      ...(demonstrations === undefined
        ? {}
        : { demonstrations: absolute('data.demonstrations', demonstrations) }),
    },
  };
}
