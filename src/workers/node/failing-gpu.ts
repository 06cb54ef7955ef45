// Keeps a node out of service whose GPU has computed wrong values: a restart alone would trust it again.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { EngineError, EngineInfo } from '../../engine/policy-engine.js';

const fileIn = (folder: string): string => join(folder, 'gpu-computed-wrong-values');

/** `folder`: of the node. A missing device needs no note: the next start looks again. */
export function noteFailingGpu(folder: string, { code, message }: EngineError): void {
  if (code !== 'DeviceDiffers') return;
  mkdirSync(folder, { recursive: true });
  writeFileSync(fileIn(folder), `${new Date().toISOString()} ${message}\n`);
}

/** Throws if a GPU of this node has failed and nobody has said since that it may go on. A CPU always may. */
export function requireTrustedGpu(folder: string, gpu: EngineInfo['gpu']): void {
  const file = fileIn(folder);
  if (gpu === null || !existsSync(file)) return;
  throw new Error(
    `this node's GPU is out of service: ${readFileSync(file, 'utf8').trim()}. Check it with native/tools/gpu_check.sh or replace it, then ` +
      `delete ${file}; or compute on the CPU with LONGHAUL_DEVICE=cpu`,
  );
}
