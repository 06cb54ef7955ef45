import { describe, expect, test } from 'vitest';
import type { OrchestratorDeps } from '../../src/activities/orchestrator-deps.js';
import { renderRunReport } from '../../src/activities/reports/publish-report.js';
import { missingDeliveriesTable } from '../../src/report/run-facts.js';
import { writeNotice } from '../../src/store/runs/notices.js';
import { recordedRun } from './recorded-run.js';

test('a missing delivery is shown with its reason, as text and not as markup', () => {
  const trouble = {
    what: 'messages behind step 12',
    reason: '<script>alert(1)</script> put a token into SLACK_BOT_TOKEN',
    since: '2026-11-23T02:54:40.928Z',
  };
  const html = missingDeliveriesTable([{ sink: 'slack', trouble }]) ?? '';
  for (const part of ['slack', 'messages behind step 12', '2026-11-23 02:54 UTC', 'into SLACK_BOT_TOKEN'])
    expect(html).toContain(part);
  expect(html).not.toContain('<script>');
  expect(missingDeliveriesTable([])).toBeNull();
});

describe('the report of a run', () => {
  const by = 'follower';
  const since = '2026-11-23T02:54:40.928Z';

  test('shows what its followers have not delivered, and leaves out what arrived later', async () => {
    const store = await recordedRun();
    const runs = {
      get: () => Promise.resolve({ tokenizer: { decode: String }, format: { name: 'hermes' } }),
    };
    const deps = { store, runs } as unknown as OrchestratorDeps;
    const page = async (): Promise<string> => {
      const { html } = await renderRunReport(deps, 'tiny', { folder: 'transcripts', keep: async () => {} });
      return html;
    };
    expect(await page()).not.toContain('Not delivered to trackers and channels');

    const slack = { what: 'messages behind step 12', reason: 'no token', since };
    const wandb = { what: 'points behind step 7', reason: 'no key', since };
    const first = await writeNotice(store, 'tiny', { sink: 'slack', trouble: slack, by }, []);
    const second = await writeNotice(store, 'tiny', { sink: 'wandb', trouble: wandb, by }, [first]);
    const both = await page();
    expect(both.match(/Not delivered to trackers and channels/g)).toHaveLength(1);
    for (const { what, reason } of [slack, wandb]) {
      expect(both).toContain(what);
      expect(both).toContain(reason);
    }

    await writeNotice(store, 'tiny', { sink: 'slack', trouble: null, by }, [first, second]);
    const later = await page();
    expect(later).toContain(wandb.what);
    expect(later).not.toContain(slack.what);
  });
});
