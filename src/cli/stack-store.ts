// The store of a command that also asks Temporal: the running stack's if none is named.
import type { Command } from 'commander';
import type { ObjectStore } from '../store/objects/object-store.js';
import { openExistingStore, storeFolderProblem, storeOfFolder, unreadableStore } from './output.js';
import { defaultStackFolder } from './stack-folder.js';
import { type TemporalFlags, temporalConfig } from './temporal-access.js';

/**
 * The named store, the running stack's, or the one in this folder; null if none is named and none is found, or it may not be read, which is
 * reported: without it a command knows less.
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
