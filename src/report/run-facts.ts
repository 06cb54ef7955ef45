// The facts of a run: model, data, numerics, its owners, and the spec with which it was started.
import { escapeHtml, table } from './html.js';
import { modelFacts } from './model-facts.js';
import type { RunHistory } from './history/run-history.js';
import { nameOfNumerics } from '../spec/records/numerics.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { UpdateRecord } from '../spec/records/update.js';
import { hasEnded, positionOf } from './run-position.js';
import type { InstanceRecord } from '../spec/records/served-model.js';
import { isTrained } from '../store/runs/served-models.js';
import { whole } from './format.js';
import type { Trouble } from '../store/runs/notices.js';

export function runFacts(history: RunHistory): string {
  const { record, updates } = history;
  const last = updates.at(-1);
  const rows: [string, string][] = [
    [hasEnded(positionOf(history)) ? 'final state' : 'newest state', last?.identity.state ?? '–'],
    ...modelFacts(record, history.base),
    ['base model', record.base_model],
    ['dataset', `${record.dataset.name} ${record.dataset.version}`],
    ['numerics', last ? nameOfNumerics(last.identity.numerics) : '–'],
    ['updates computed on', devicesText(updates)],
    ['engine builds', [...new Set(updates.map((update) => update.observed.engine.build))].join(', ') || '–'],
    ['driven by', ownersText(history)],
  ];
  const body = rows
    .map(([name, value]) => `<tr><th scope="row">${name}</th><td><code>${escapeHtml(value)}</code></td></tr>`)
    .join('');
  const spec = escapeHtml(JSON.stringify(record.spec, null, 2));
  return `<table class="facts">${body}</table><details><summary>spec</summary><pre>${spec}</pre></details>`;
}

/** Why rewards of training steps are no pass@1; empty if pass rates do not influence which tasks are drawn. */
export function curriculumInWords({ spec }: Pick<RunRecord, 'spec'>): string {
  const { curriculum, curriculum_floor } = spec.trainer;
  const prefers = (curriculum?.floor ?? curriculum_floor) > 0;
  if (!prefers) return '';
  const preferred = curriculum?.by === 'env' ? 'environments whose tasks' : 'tasks that';
  return (
    `The curriculum prefers ${preferred} the policy sometimes solves, so the reward of training steps may stay below pass@1 on ` +
    'held-out tasks.'
  );
}

/**
 * The devices of the updates, with their numbers of steps if there are several; episodes may have been sampled on other devices. An update that
 * names no GPU was computed on a CPU.
 */
export function devicesText(updates: readonly UpdateRecord[]): string {
  const steps = new Map<string, number>();
  for (const { identity, observed } of updates) {
    const device = identity.numerics.backend === 'tinker' ? 'a Tinker server' : (observed.device ?? 'CPU');
    steps.set(device, (steps.get(device) ?? 0) + 1);
  }
  if (steps.size <= 1) return [...steps.keys()][0] ?? '–';
  return [...steps].map(([device, n]) => `${device} (${n} ${n === 1 ? 'step' : 'steps'})`).join(', ');
}

/** A workflow claims its run again whenever it continues as new. That is the same owner, not a restart, so it is counted once. */
function ownersText({ owners }: RunHistory): string {
  const drivers = new Map<string, number>();
  for (const owner of owners) {
    const driver = `${owner.workflowId} on ${owner.address}, first run ${owner.firstExecutionRunId}`;
    drivers.set(driver, (drivers.get(driver) ?? 0) + 1);
  }
  return (
    [...drivers]
      .map(
        ([driver, claims]) =>
          `${driver}${claims > 1 ? ` (in ${claims} executions: it continued as new; no process restarted)` : ''}`,
      )
      .join('; ') || '–'
  );
}

const meaning =
  'Only the newest model is trained: one that was lost or in doubt is given up, and the next begins with a saved state and applies the ' +
  'batches after it again, so that each batch is in the weights once.';

/** Without those that were only sampled. Null for a run without models on a server. */
export function servedModelsTable(instances: readonly InstanceRecord[]): string | null {
  const begun = instances.filter((one) => one.given_up === undefined && isTrained(one));
  if (begun.length === 0) return null;
  const rows = table(begun, [
    ['the server’s id', ({ model }) => `<code>${escapeHtml(model)}</code>`],
    ['began with', beginning],
    ['begun', ({ observed }) => escapeHtml(`${observed.at.slice(0, 19).replace('T', ' ')} UTC`)],
    ['node', ({ observed }) => escapeHtml(observed.by)],
  ]);
  return `${rows}<p class="quiet">${meaning}</p>`;
}

function beginning({ step, path, passed_over = [] }: InstanceRecord): string {
  const state = path === null ? 'fresh adapters' : `step ${whole(step)}, <code>${escapeHtml(path)}</code>`;
  const passed = passed_over.map((one) => `<code>${escapeHtml(one)}</code>`).join(', ');
  return passed === '' ? state : `${state} <span class="quiet">(newer, did not load: ${passed})</span>`;
}

export interface LackingSink {
  sink: string;
  trouble: Trouble;
}

/** Null if every tracker and channel has received everything. */
export function missingDeliveriesTable(lacking: readonly LackingSink[]): string | null {
  if (lacking.length === 0) return null;
  return table(lacking, [
    ['who', ({ sink }) => `<strong>${escapeHtml(sink)}</strong>`],
    ['lacks', ({ trouble }) => escapeHtml(trouble.what)],
    ['since', ({ trouble }) => `${trouble.since.slice(0, 16).replace('T', ' ')} UTC`],
    ['why', ({ trouble }) => escapeHtml(trouble.reason)],
  ]);
}
