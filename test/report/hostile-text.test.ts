// All text from a model, an environment or a person is plain text in the report. It creates no element, attribute or link.
import { beforeAll, describe, expect, it } from 'vitest';
import { readChanges } from '../../src/report/history/changes.js';
import { faultsOf, readAttempts } from '../../src/report/history/faults.js';
import { renderReport } from '../../src/report/html-report.js';
import { readHistory, type RunHistory } from '../../src/report/history/run-history.js';
import type { ReadEpisodes } from '../../src/report/report-episodes.js';
import { callOf, failed, readEpisodes, recordEvaluated, type SaidEpisode } from './recorded-episodes.js';
import { memoryStore } from '../workers/follower/memory-store.js';
import { recordedRun } from './recorded-run.js';

const hostile = [
  '<script>alert(1)</script>',
  '</script><script>alert(1)</script>',
  '</pre></details></main><img src=x onerror=alert(1)>',
  '"><svg onload=alert(1)>',
  "' onmouseover='alert(1)",
  '" style="background:url(javascript:alert(1))',
  'javascript:alert(1)',
  '<a href="javascript:alert(1)">here</a>',
  '<iframe srcdoc="<script>alert(1)</script>">',
  '<!-- --><![CDATA[',
  '</style><style>*{display:none}</style>',
  '</title><base href="//evil.example/">',
  '&lt;script&gt;alert(1)&lt;/script&gt;',
  '&#x3c;script&#x3e;',
  '<math><mtext></p><style><img src=x onerror=alert(1)>',
  '\u0000<script\u0000>alert(1)</script>',
  '＜script＞alert(1)＜/script＞',
  '<meta http-equiv="refresh" content="0;url=//evil.example">',
  '\u202e<script>',
  '${alert(1)} {{alert(1)}} `',
];

/** Every tag with the names of its attributes, as a browser would build them. */
function skeleton(html: string): string[] {
  return (html.match(/<[^>]*>/g) ?? []).map((tag) => tag.replace(/="[^"]*"/g, '=""'));
}

describe('a report', () => {
  let history: RunHistory;
  let common: Omit<Parameters<typeof renderReport>[0], 'history' | 'episodes'>;
  beforeAll(async () => {
    const store = await recordedRun();
    history = await readHistory(store, 'tiny');
    const attempts = await readAttempts(store, history);
    common = {
      faults: faultsOf(history, attempts),
      changes: await readChanges(store, history),
    };
  });

  /** A run whose newest evaluation has one episode. */
  async function episodesWith(...said: SaidEpisode[]): Promise<ReadEpisodes> {
    const store = memoryStore();
    await recordEvaluated(store, history, said);
    return readEpisodes(store, history);
  }
  const everywhere = (text: string): SaidEpisode => ({
    ...{ request: text, task_key: text, outcome: { status: 'unknown', reason: text, failures: 1 } },
    env_key: text,
    turns: [
      { says: text + callOf(text, { [text]: text }), tool: text, answer: `Error: ${text}`, error: true },
      { says: text },
    ],
  });
  const page = (episodes: ReadEpisodes): string => renderReport({ ...common, history, episodes });

  /** The history with `text` in place of every text that a person or a program can choose. */
  function historyWith(text: string): RunHistory {
    const replaced = structuredClone(history);
    const { record } = replaced;
    record.run = text;
    record.spec.project = text;
    record.spec.model = { ...record.spec.model, name: text, tokenizer: text };
    record.spec.environments = [{ env_key: text, url: text }];
    record.dataset = { ...record.dataset, name: text };
    record.base_model = text;
    for (const update of replaced.updates) {
      update.observed.engine = { ...update.observed.engine, build: text, incarnation: text };
      update.observed.device = text;
    }
    replaced.updates.at(-1)!.identity.applied = { reason: text };
    replaced.owners = replaced.owners.map((owner) => ({ ...owner, workflowId: text, address: text }));
    for (const { result } of replaced.evaluations) {
      for (const part of Object.values(result) as unknown[]) renameEnvironments(part, text);
    }
    return replaced;
  }

  it.each(hostile)('shows %j in an episode as text', async (text) => {
    const html = page(await episodesWith(everywhere(text)));
    expect(skeleton(html)).toEqual(skeleton(page(await episodesWith(everywhere('plain')))));
    if (text.includes('<')) expect(html).not.toContain(text);
  });

  it.each(hostile)('shows %j in the run’s records as text', async (text) => {
    const episodes = await episodesWith();
    const render = (said: string) =>
      renderReport({
        ...common,
        history: historyWith(said),
        episodes,
        changes: common.changes.map((change) => ({ ...change, what: said, at: said })),
      });
    expect(skeleton(render(text))).toEqual(skeleton(render('plain')));
  });

  it('may run only its own script, even if hostile markup got through', async () => {
    const html = page(
      await episodesWith({ request: 'Close it.', turns: [{ says: '<done>' }], outcome: failed }),
    );
    const policy = /<meta http-equiv="Content-Security-Policy" content="([^"]*)">/.exec(html)?.[1];
    expect(policy).toMatch(
      /^default-src 'none'; style-src 'sha256-[^']+'; script-src 'sha256-[^']+' 'strict-dynamic'; require-trusted-types-for 'script'; trusted-types longhaul; base-uri 'none'; form-action 'none'$/,
    );
    expect(html).not.toMatch(/<(img|iframe|object|embed|base|link)\b/i);
    expect(html).not.toMatch(/<[^>]*\s(on\w+|src|srcdoc|action|style)\s*=/i);
    expect(html.match(/href="[^"]*"/g)?.every((link) => link.startsWith('href="#'))).toBe(true);
    expect(html.match(/<script(?! type="application\/json")/g)).toHaveLength(1);
    // The policy comes before any text from outside.
    expect(html.indexOf('Content-Security-Policy')).toBeLessThan(html.indexOf('<title>'));
  });

  it('has no script if it has no transcripts', async () => {
    const html = page(await episodesWith());
    expect(html).not.toContain('<script');
    expect(html).not.toContain('script-src');
  });
});

/** Renames environments and templates, which are the keys of an evaluation's counts. */
function renameEnvironments(part: unknown, text: string): void {
  if (Array.isArray(part)) return part.forEach((one) => renameEnvironments(one, text));
  if (typeof part !== 'object' || part === null) return;
  const record = part as Record<string, unknown>;
  if (typeof record['env_key'] === 'string') record['env_key'] = text;
  if (typeof record['template'] === 'string') record['template'] = text;
}
