// The store of a command that also asks Temporal: where none is named, the running stack's.
import type { Command } from 'commander';
import type { ObjectStore } from '../store/object-store.js';
import { openExistingStore, storeFolderProblem, unreadableStore } from './output.js';
import { type TemporalFlags, temporalConfig } from './temporal-access.js';

/**
 * The named store, the running stack's, or the one in this folder; null where nothing was named and none is there, or none that may be
 * read, which is said: without it a command knows less.
 */
export async function storeOfCommand(
  command: Command,
  flags: TemporalFlags & { store: string },
): Promise<ObjectStore | null> {
  if (command.getOptionValueSource('store') !== 'default') return openExistingStore(flags.store);
  const { stack } = temporalConfig(flags);
  if (stack) return openExistingStore(stack.store);
  const problem = await storeFolderProblem(flags.store);
  if (problem === null) return openExistingStore(flags.store);
  if (problem !== 'ENOENT') console.error(unreadableStore(flags.store, problem));
  return null;
}
