// The run's models on a Tinker server, and why there were several of them.
import type { InstanceRecord } from '../spec/records/served-model.js';
import { isTrained } from '../store/runs/served-models.js';
import { whole } from './format.js';
import { escapeHtml, table } from './html.js';

const meaning =
  'Only the newest model is trained: one that was lost or in doubt is given up, and the next begins with a saved state and applies the ' +
  'batches after it again, so that each batch is in the weights once.';

/** Without those that were only sampled. Null for a run without models on a server. */
export function servedModelsTable(instances: readonly InstanceRecord[]): string | null {
  const begun = instances.filter((one) => one.given_up === undefined && isTrained(one));
  if (begun.length === 0) return null;
  const rows = table(begun, [
    { title: 'the server’s id', cell: ({ model }) => `<code>${escapeHtml(model)}</code>` },
    { title: 'began with', cell: beginning },
    {
      title: 'begun',
      cell: ({ observed }) => escapeHtml(`${observed.at.slice(0, 19).replace('T', ' ')} UTC`),
    },
    { title: 'node', cell: ({ observed }) => escapeHtml(observed.by) },
  ]);
  return `${rows}<p class="quiet">${meaning}</p>`;
}

function beginning({ step, path, passed_over = [] }: InstanceRecord): string {
  const state = path === null ? 'fresh adapters' : `step ${whole(step)}, <code>${escapeHtml(path)}</code>`;
  const passed = passed_over.map((one) => `<code>${escapeHtml(one)}</code>`).join(', ');
  return passed === '' ? state : `${state} <span class="quiet">(newer, did not load: ${passed})</span>`;
}
