// Shares out a machine's GPUs among the nodes of a stack: an engine uses the first GPU that it sees.
import { readdirSync } from 'node:fs';

/** The variables of a node's process that choose its GPU; empty if the machine has fewer than two GPUs. `index`: the node's number; `folder`: where
 * NVIDIA's driver lists the GPUs. */
export function gpuOfNode(
  index: number,
  env: NodeJS.ProcessEnv = process.env,
  folder = '/proc/driver/nvidia/gpus',
): { CUDA_VISIBLE_DEVICES?: string } {
  const named = env['CUDA_VISIBLE_DEVICES']?.split(',').filter(Boolean);
  const visible = named ?? listed(folder).map((_, place) => String(place));
  const own = visible.length > 1 ? visible[index % visible.length] : undefined;
  return own === undefined ? {} : { CUDA_VISIBLE_DEVICES: own };
}

function listed(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
