// Turns a user's run spec, a file or a value, into the checked spec that all other code uses.
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { parse as parseYaml } from 'yaml';
import type { z } from 'zod';
import { combinationProblems } from './combinations.js';
import { InvalidSpec, refuseOtherKind } from './invalid-spec.js';
import type { RunSpec } from './run-spec.js';
import { loraTargets } from './model-schema.js';
import { runSpecSchema } from './schema.js';
import { issueProblems } from './spec-issues.js';
import { withAbsolutePaths, withModelFiles } from './spec-paths.js';

/**
 * Checks a spec and fills in all defaults. File paths become absolute, relative to `context.file`'s folder.
 * Throws `InvalidSpec` with every problem at once.
 */
export function parseRunSpec(input: unknown, context: { file?: string } = {}): RunSpec {
  const result = runSpecSchema.safeParse(input);
  if (!result.success) {
    refuseOtherKind(input, 'run', context.file ?? 'the run spec');
    throw new InvalidSpec(issueProblems(result.error.issues, runSpecSchema, input), context.file);
  }
  const spec = completed(result.data);
  const problems = combinationProblems(spec);
  const located = withAbsolutePaths(spec, context.file, problems);
  if (problems.length > 0) throw new InvalidSpec(problems, context.file);
  return located;
}

/**
 * Reads a spec from a YAML or JSON file. Throws `InvalidSpec` if the file cannot be read or parsed, or the spec is not valid. `change`:
 * changes the file's content before it is checked.
 */
export async function readSpecFile(
  path: string,
  change: (input: unknown) => unknown = (input) => input,
): Promise<RunSpec> {
  const input = await readSpecValue(path, '; presets/ has examples');
  return parseRunSpec(change(input), { file: resolve(path) });
}

/** The value in a file. `hint`: which files there are. Throws `InvalidSpec` if the file cannot be read or parsed. */
export async function readSpecValue(path: string, hint = ''): Promise<unknown> {
  const fail = (problem: string, fix: string): never => {
    throw new InvalidSpec([{ path: '', problem, fix }], path);
  };
  const source = await readFile(resolve(path), 'utf8').catch((error: NodeJS.ErrnoException) =>
    fail(...unreadable(error, hint)),
  );
  try {
    return parseYaml(source, { uniqueKeys: true });
  } catch (error) {
    return fail(`it is neither YAML nor JSON: ${(error as Error).message.trim()}`, '');
  }
}

function unreadable({ code, message }: NodeJS.ErrnoException, hint: string): [problem: string, fix: string] {
  const fix = `name a YAML or JSON file${hint}`;
  if (code === 'ENOENT') return ['there is no such file', fix];
  if (code === 'EISDIR') return ['it is a folder', fix];
  if (code === 'EACCES') return ['this user may not read it', 'change its permissions, or name another file'];
  return [`it cannot be read: ${message}`, ''];
}

/**
 * Adds to a stored spec the settings that later versions introduced. These settings get their defaults, which keep the behaviour of the
 * version that stored the spec. A spec that this version would refuse is returned unchanged.
 */
export function withLaterSettings(stored: RunSpec): RunSpec {
  const result = runSpecSchema.safeParse(stored);
  return result.success ? completed(result.data) : stored;
}

/** Fills in what a default cannot express: the model folder's own files. Sorts the adapter targets as state files do. */
function completed({ model, ...rest }: z.output<typeof runSpecSchema>): RunSpec {
  const { lora } = model;
  return {
    ...rest,
    model: {
      ...withModelFiles(model),
      ...(lora
        ? { lora: { ...lora, targets: loraTargets.filter((one) => lora.targets.includes(one)) } }
        : {}),
    },
  };
}
