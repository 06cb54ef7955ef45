// Finds the store for a command that also asks Temporal: if no store is named, the running stack's.
import type { Command } from 'commander';
import type { ObjectStore } from '../store/objects/object-store.js';
import { openExistingStore, storeFolderProblem, storeOfFolder, unreadableStore } from './output.js';
import { defaultStackFolder } from './stack-folder.js';
import { type TemporalFlags, temporalConfig } from './temporal-access.js';

/**
 * The named store, the running stack's, or the one in this folder. Null if no store is named and none is found. Null, with a message, if
 * the folder's store may not be read: the command still works, but knows less.
 */
export async function storeOfCommand(
  command: Command,
  flags: TemporalFlags & { store: string },
): Promise<ObjectStore | null> {
  if (command.getOptionValueSource('store') !== 'default') return openExistingStore(flags.store);
  const { stack, folder } = temporalConfig(flags);
  if (stack) return openExistingStore(stack.store);
  const store = folder === defaultStackFolder ? flags.store : storeOfFolder(folder);
  const problem = await storeFolderProblem(store);
  if (problem === null) return openExistingStore(store);
  if (problem !== 'ENOENT') console.error(unreadableStore(store, problem));
  return null;
}
