// The live text of a run in the Temporal UI's own page for Markdown, in a real browser: the pane of a window that is 1,280 pixels wide shows all of it.
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunStatus } from '../../../src/activities/contracts.js';
import { freePort } from '../../../src/stack/free-port.js';
import { findTemporalBinary } from '../../../src/stack/temporal-binary.js';
import { temporalServerArguments } from '../../../src/workers/temporal/temporal-server.js';
import type { PoolView } from '../../../src/workflows/messages.js';
import { poolDetails } from '../../../src/workflows/pool/pool-details.js';
import { noControl } from '../../../src/workflows/run/control-desk.js';
import { detailsOf } from '../../../src/workflows/status/run-details.js';
import { browserPath, launchBrowser } from '../../support/browser.js';
import { ended } from '../../support/servers/temporal-server.js';
import { outlineOf } from '../scripted-run.js';

/** Width of the pane, measured in UI 2.55. */
const pane = 480;

const curve = Array.from({ length: 40 }, (_, step) => step / 40);
const usual: RunStatus = {
  ...{ run: 'quickstart-seed1', phase: 'collecting', step: 299, totalSteps: 504, trainingPhase: 'grpo' },
  ...{ owner: 2, node: 'local', sharingNodes: [], waitsFor: null, state: null, control: noControl },
  ...{ blocked: null, lastCheckpoint: 280, tokens: 34_920, sampleSeconds: 10, report: null },
  evaluations: curve.map((pass_at_1, n) => ({ step: 7 * n, suite: 'interval', pass_at_1, graded: 128 })),
  recent: [{ step: 299, kind: 'grpo', seconds: 2.7, metrics: { 'reward/avg_raw_reward': 0.71 } }],
  rewards: curve,
  outcomes: { graded: 70_400, unknown: 0, last: { step: 299, graded: 256, unknown: 0 } },
};
const large: RunStatus = {
  ...usual,
  ...{ run: 'support-agent-with-a-long-name', step: 123_456, totalSteps: 200_000, phase: 'evaluating' },
  ...{ sharingNodes: ['gpu-node-2', 'gpu-node-3'], owner: 14, trainingPhase: 'warm_start teacher' },
  served: [
    { kind: 'train', number: 123_456_789 },
    { kind: 'sample', number: 987_654_321 },
  ],
  budget: [{ name: 'max_tokens', limit: 20_000_000_000, spent: 15_000_000_000 }],
};
const cases: Record<string, { status: RunStatus; model: string }> = {
  'of the quickstart': { status: usual, model: 'quickstart-0.5m' },
  'with large figures': { status: large, model: 'Qwen/Qwen3-30B-A3B-Instruct' },
  'with names that do not break': {
    status: {
      ...large,
      run: 'support_agent_with_a_long_name_of_the_year_2026',
      node: 'ip-10-0-123-45.eu-central-1.compute.internal',
    },
    model: 'WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW',
  },
};

describe.skipIf(browserPath === '')('the live text in the UI (chromium, or LONGHAUL_CHROMIUM)', () => {
  let server: ChildProcess;
  let browser: Browser;
  let address: string;

  beforeAll(async () => {
    const uiPort = await freePort();
    address = `http://127.0.0.1:${uiPort}`;
    const flags = temporalServerArguments({ port: await freePort(), uiPort, databaseFile: null });
    server = spawn(findTemporalBinary(), flags, { stdio: 'ignore' });
    browser = await launchBrowser();
    const answers = (): Promise<boolean> =>
      fetch(address).then(
        ({ ok }) => ok,
        () => false,
      );
    while (!(await answers())) await delay(100);
  });
  afterAll(async () => {
    await browser?.close();
    if (server) await ended(server);
  });

  it.each(Object.entries(cases))('%s fits the pane', async (_, { status, model }) => {
    const text = detailsOf(status, {
      outline: { ...outlineOf(status.run), project: 'longhaul', model },
      checkpointTrouble: 's3://bucket/longhaul/checkpoints/00012345: access denied',
      now: Date.UTC(2030, 10, 28, 22, 43),
    });
    await fits(text, 6);
  });

  it('of the pool fits the pane', async () => {
    const since = Date.UTC(2030, 10, 28, 22, 43);
    const node = (id: string): PoolView['nodes'][number] => ({
      ...{ id, instance: 'a', host: id, memory_bytes: 1, places: 2, lastSeen: since, state: 'up' },
      ...{ gpu: null, numerics: { backend: 'cpu', version: 2 } },
    });
    const lease = { lease: 'l', run: 'support-agent', project: 'crm', node: 'gpu-1', since };
    const nodes = [node('gpu-1'), { ...node('local'), state: 'draining' as const }];
    await fits(poolDetails({ nodes, leases: [lease], queue: [] }), 2);
  });

  async function fits(text: string, leastRows: number): Promise<void> {
    const page = await browser.newPage({ viewport: { width: pane, height: 900 } });
    await page.goto(`${address}/render?content=${encodeURIComponent(text)}`);
    const rows = await page.locator('tr').count();
    expect(rows).toBeGreaterThan(leastRows);
    const table = await page.locator('table').boundingBox();
    expect((table?.x ?? pane) + (table?.width ?? pane)).toBeLessThan(pane);
    expect(await page.evaluate<number>('document.documentElement.scrollWidth')).toBe(pane);
    await page.close();
  }
});
