import { beforeAll, describe, expect, test } from 'vitest';
import { readChanges } from '../../src/report/history/changes.js';
import { faultsOf, readAttempts } from '../../src/report/history/faults.js';
import { renderReport } from '../../src/report/html-report.js';
import { readHistory } from '../../src/report/history/run-history.js';
import { servedModelsTable } from '../../src/report/run-facts.js';
import type { InstanceRecord } from '../../src/spec/records/served-model.js';
import { recordsOfAllKinds } from '../store/fixtures.js';
import { readEpisodes } from './recorded-episodes.js';
import { recordedRun } from './recorded-run.js';

const { instance } = recordsOfAllKinds();
const second: InstanceRecord = {
  ...instance,
  ...{ n: 2, model: 'model_<b>2', step: 3, path: 'tinker://model_1/weights/s000003-00' },
  passed_over: ['tinker://model_1/weights/s000004-<i>'],
  observed: { at: '2026-11-23T02:54:40.928Z', by: 'node-2' },
};

describe('the models of a run on a Tinker server', () => {
  test('are shown with what they began with, and what did not load, as text and not as markup', () => {
    const html = servedModelsTable([instance, second]) ?? '';
    for (const part of [
      ...['model_1', 'fresh adapters', 'node-1'],
      ...['model_&lt;b&gt;2', 'step 3, <code>tinker://model_1/weights/s000003-00</code>', 'node-2'],
      ...['did not load: <code>tinker://model_1/weights/s000004-&lt;i&gt;</code>', '2026-11-23 02:54:40 UTC'],
    ])
      expect(html).toContain(part);
    expect(html).not.toMatch(/<[bi]>/);
  });

  test('are those that were trained', () => {
    const sampled: InstanceRecord = {
      ...second,
      schema: 'longhaul.instance/2',
      purpose: 'evaluate',
      node: 'b',
    };
    expect(servedModelsTable([instance, sampled])).not.toContain('model_&lt;b&gt;2');
    expect(servedModelsTable([sampled])).toBeNull();
  });

  describe('have a section in the report', () => {
    let page: (instances?: readonly InstanceRecord[]) => string;
    beforeAll(async () => {
      const store = await recordedRun();
      const history = await readHistory(store, 'tiny');
      const input = {
        ...{ history, faults: faultsOf(history, await readAttempts(store, history)) },
        ...{ changes: await readChanges(store, history), episodes: await readEpisodes(store, history) },
      };
      page = (instances) => renderReport({ ...input, ...(instances ? { instances } : {}) });
    });

    test('which says why there are several', () => {
      const html = page([instance, second]);
      expect(html).toContain('<h2>Models on the Tinker server</h2>');
      expect(html).toContain('each batch is in the weights once');
    });

    test('and runs on other engines have none', () => expect(page()).not.toContain('Tinker'));
  });
});
