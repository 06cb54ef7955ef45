// Process entry of the orchestrator worker. Flags and variables: config.ts.
import { join } from 'node:path';
import { readWorkerConfig } from './process/config.js';
import { lockFolder } from './process/folder-lock.js';
import { keepLife } from './process/life-file.js';
import { exitWith } from './process/worker-exit.js';

await exitWith('orchestrator', async () => {
  const config = readWorkerConfig(process.argv.slice(2));
  const lock = lockFolder(config.folder, `orchestrator worker of ${config.temporal.address}`);
  try {
    // The folder's previous process is dead. Record it now: loading all modules takes another second.
    const kept = keepLife(join(config.folder, 'life.json'), 'orchestrator', 'orchestrator_restart');
    const { runOrchestrator } = await import('./orchestrator/orchestrator-process.js');
    await runOrchestrator(config, kept);
  } finally {
    lock.release();
  }
});
