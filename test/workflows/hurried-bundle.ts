// The bundle of `hurried/`, for workers whose workflows shall not wait for minutes.
import { createHash, randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';
import { workflowBundle } from './scripted-run.js';

const folder = new URL('hurried/', import.meta.url).pathname;

/** Bundling takes seconds of a processor, so the bundle is kept beside the real one, which has the hash of the workflows in its name. */
export async function hurriedBundle(): Promise<{ codePath: string }> {
  const { codePath: real } = await workflowBundle();
  const hash = createHash('sha256');
  for (const name of readdirSync(folder).sort()) hash.update(readFileSync(folder + name));
  const codePath = real.replace(/\.js$/, `-hurried-${hash.digest('hex').slice(0, 8)}.js`);
  if (existsSync(codePath)) return { codePath };
  const logger = new DefaultLogger('WARN');
  const { code } = await bundleWorkflowCode({ workflowsPath: folder, logger });
  const draft = `${codePath}.${randomUUID()}`;
  writeFileSync(draft, code);
  renameSync(draft, codePath);
  return { codePath };
}
