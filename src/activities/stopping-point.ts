// Named places where a test may stop, kill or continue a real process. Without LONGHAUL_STOPPING_POINTS nothing happens.
import { existsSync, watch } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export type StoppingPoint =
  | 'plan-built'
  | 'plan-written'
  | 'episode-written'
  | 'batch-built'
  | 'batch-written'
  | 'update-computed'
  | 'update-recorded'
  | 'checkpoint-data-written';

/**
 * Waits while the file `{folder}/{name}` exists, after writing `{name}.reached.{pid}` beside it.
 * A test that holds a point owns the wait: it removes the file or kills this process.
 */
export async function stoppingPoint(name: StoppingPoint): Promise<void> {
  const folder = process.env['LONGHAUL_STOPPING_POINTS'];
  if (folder === undefined) return;
  const gate = join(folder, name);
  if (!existsSync(gate)) return;
  await writeFile(join(folder, `${name}.reached.${process.pid}`), '');
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
