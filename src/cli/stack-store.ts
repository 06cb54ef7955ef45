// The store of a command that also asks Temporal: where none is named, the running stack's.
import type { Command } from 'commander';
import type { ObjectStore } from '../store/objects/object-store.js';
import { openExistingStore, storeFolderProblem, storeOfFolder, unreadableStore } from './output.js';
import { defaultStackFolder } from './stack-folder.js';
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
  const { stack, folder } = temporalConfig(flags);
  if (stack) return openExistingStore(stack.store);
  const store = folder === defaultStackFolder ? flags.store : storeOfFolder(folder);
  const problem = await storeFolderProblem(store);
  if (problem === null) return openExistingStore(store);
  if (problem !== 'ENOENT') console.error(unreadableStore(store, problem));
  return null;
}
