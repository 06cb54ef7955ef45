// Named places where a test can hold or kill a real process. They do nothing unless LONGHAUL_STOPPING_POINTS is set.
import { existsSync, watch } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { currentScope } from './scope.js';

type StoppingPoint =
  | 'fork-referred'
  | 'fork-recorded'
  | 'fork-named'
  | 'plan-built'
  | 'plan-written'
  | 'wave-built'
  | 'wave-written'
  | 'rollouts-asked-for'
  | 'episodes-looked-for'
  | 'episodes-missed'
  | 'episode-begun'
  | 'episode-written'
  | 'batch-built'
  | 'batch-written'
  | 'update-computed'
  | 'update-recorded'
  | 'checkpoint-data-written'
  | 'dataset-gathered'
  | 'task-taught'
  | 'gate-played';

/**
 * Waits while one of these files exists:
 * `{folder}/{name}`
 * `{folder}/{name}.{activity}`, where the activity's id has dots instead of slashes
 * `{folder}/{name}.{activity}.{part}`, for one part of the activity's work
 * Before it waits, it writes `{that file}.reached.{pid}`. The test ends the wait: it removes the file or kills this process.
 */
export async function stoppingPoint(name: StoppingPoint, part?: string): Promise<void> {
  const folder = process.env['LONGHAUL_STOPPING_POINTS'];
  if (folder === undefined) return;
  const ofActivity = `${name}.${currentScope().activity.replaceAll('/', '.')}`;
  const ofPart = part === undefined ? [] : [`${ofActivity}.${part}`];
  for (const held of [name, ofActivity, ...ofPart]) await whileHeld(folder, held);
}

async function whileHeld(folder: string, held: string): Promise<void> {
  const gate = join(folder, held);
  if (!existsSync(gate)) return;
  await writeFile(join(folder, `${held}.reached.${process.pid}`), '');
  await new Promise<void>((resolve) => {
    const watcher = watch(folder, () => {
      if (existsSync(gate)) return;
      watcher.close();
      resolve();
    });
    if (!existsSync(gate)) {
      watcher.close();
      resolve();
    }
  });
}
