// The tool list of each environment as prompts show it: sorted, because servers may list tools in any order and all nodes must show the same
// prompt; and the same object as long as nothing changes, because prompts are cached by the identity of their list.
import { isDeepStrictEqual } from 'node:util';
import type { ToolSpec } from '../spec/records/task.js';
import { inOrder } from './tool-results.js';

export class KnownTools {
  readonly #newest = new Map<string, readonly ToolSpec[]>();

  /** The environment's earlier list if it has the same tools; else the new list, sorted. */
  listOf(envKey: string, tools: readonly ToolSpec[]): readonly ToolSpec[] {
    const newest = this.#newest.get(envKey);
    const ordered = inOrder(tools);
    if (newest && isDeepStrictEqual(newest, ordered)) return newest;
    this.#newest.set(envKey, ordered);
    return ordered;
  }
}
