// What `longhaul doctor --spec` says of a file of demonstrations. The start of a run asks the environments that they name for their tools,
// and is refused if one cannot list them.
import { toolListsFor } from '../../data/tool-lists.js';
import type { ToolFormat } from '../../episode/tool-formats/tool-format.js';
import { turnIn } from '../../episode/tool-formats/shown-turn.js';
import { actionOf } from '../../episode/turn-action.js';
import { environmentOf } from '../../spec/environments/environment-schema.js';
import type { Demonstration, Task, ToolSpec } from '../../spec/records/task.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';

const answersWithinMs = 5_000;
const shownCalls = 3;

interface DemonstrationFiles {
  demonstrations: readonly Demonstration[];
  tasks: readonly Task[];
}

/**
 * Throws the error with which a run's start would refuse the demonstrations. `format`: null if the model cannot be read; the calls in turns are
 * then not checked. Fleet's environments are not asked, because that would take an instance.
 */
export async function demonstrationsText(
  { demonstrations, tasks }: DemonstrationFiles,
  environments: readonly EnvironmentSpec[],
  format: ToolFormat | null,
): Promise<string> {
  const asked = demonstrations.filter(
    ({ env_key }) => env_key !== undefined && environmentOf(environments, env_key)?.kind !== 'fleet',
  );
  const lists = await toolListsFor(asked, tasks, environments, { withinMs: answersWithinMs });
  const count = `${demonstrations.length} ${demonstrations.length === 1 ? 'demonstration' : 'demonstrations'}`;
  const names = Object.keys(lists);
  return [
    names.length === 0 ? count : `${count}; their tools are listed by ${names.join(', ')}`,
    ...(format === null ? [] : unknownCalls(asked, lists, format)),
  ].join('; ');
}

/** A run takes such demonstrations: they teach calls that are answered with an error. */
function unknownCalls(
  demonstrations: readonly Demonstration[],
  lists: Readonly<Record<string, readonly ToolSpec[]>>,
  format: ToolFormat,
): string[] {
  const unknown = new Map<string, number>();
  for (const { env_key, messages } of demonstrations) {
    const tools = lists[env_key as string] ?? [];
    const called = messages
      .filter(({ role }) => role === 'assistant')
      .map(
        ({ content }) =>
          actionOf(turnIn(format, content, tools), format, { opensThinking: false, tools }).asked,
      )
      .flatMap((asked) => (asked?.kind === 'call' ? [asked.call.name] : []))
      .filter((name) => tools.every((tool) => tool.name !== name));
    for (const name of new Set(called)) {
      const call = `${name} of ${env_key}`;
      unknown.set(call, (unknown.get(call) ?? 0) + 1);
    }
  }
  if (unknown.size === 0) return [];
  const shown = [...unknown].slice(0, shownCalls).map(([call, count]) => `${call} (${count})`);
  const more = unknown.size > shownCalls ? `, and ${unknown.size - shownCalls} more` : '';
  return [`some call tools that their environment does not list: ${shown.join(', ')}${more}`];
}
