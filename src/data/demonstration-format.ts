// Finds demonstrations that cannot be written in a run's tool format. Training on them would teach calls that the run does not understand.
import { refuseUnwritable } from '../episode/demonstration.js';
import { callStretches } from '../episode/tool-formats/tagged-calls.js';
import { type ToolFormat, toolFormat } from '../episode/tool-formats/tool-format.js';
import type { Demonstration } from '../spec/records/task.js';
import type { SpecProblem } from '../spec/invalid-spec.js';
import type { RunSpec } from '../spec/run-spec.js';
import type { Dataset } from './dataset-cache.js';

/** The first problem of each phase that trains on such demonstrations. */
export function unwritableDemonstrations(
  { warm_start }: Pick<RunSpec, 'warm_start'>,
  format: ToolFormat,
  {
    demonstrations,
    demonstrationsByKind,
    tools,
  }: Pick<Dataset, 'demonstrations' | 'demonstrationsByKind' | 'tools'>,
): SpecProblem[] {
  return warm_start.flatMap(({ demonstrations: kind }, phase) => {
    const problems = (demonstrationsByKind.get(kind) ?? []).flatMap((line) => {
      const demonstration = demonstrations[line];
      const listed = demonstration?.env_key === undefined ? undefined : tools[demonstration.env_key];
      try {
        if (demonstration) refuseUnwritable(format, demonstration, listed ?? []);
        return [];
      } catch (error) {
        return [(error as Error).message];
      }
    });
    const [first] = problems;
    if (first === undefined) return [];
    const more = problems.length === 1 ? '' : `; ${problems.length - 1} more cannot be written either`;
    return [
      {
        path: `warm_start[${phase}].demonstrations`,
        problem: `${first}${more}`,
        fix: 'correct or remove them, or set generator.tool_format: hermes',
      },
    ];
  });
}

/** Formats without tags. A call in one of them may have tags in its arguments. */
const untagged = (['llama_json', 'mistral', 'gpt_oss'] as const).map(toolFormat);

/** The first turn with tags around something that is no call: a model would learn to write it. Null if there is none. */
export function malformedCall({ messages }: Demonstration): string | null {
  const context = { opensThinking: false, tools: [] };
  for (const [index, { role, content }] of messages.entries()) {
    if (role !== 'assistant') continue;
    const pieces = callStretches(content, context).flatMap((stretch) => stretch.pieces);
    const found = pieces.find((piece) => piece.kind === 'malformed');
    if (
      !found ||
      untagged.some(({ piecesOf }) => piecesOf(content, context).some(({ kind }) => kind === 'call'))
    )
      continue;
    return `messages[${index}].content has a malformed call: ${found.problem}`;
  }
  return null;
}
