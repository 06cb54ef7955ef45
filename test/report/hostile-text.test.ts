// Whatever a model, an environment or a person wrote is text in the report: it makes no element, no attribute and no link.
import { beforeAll, describe, expect, it } from 'vitest';
import { readChanges } from '../../src/report/changes.js';
import { faultsOf } from '../../src/report/faults.js';
import { renderReport } from '../../src/report/html-report.js';
import { readAttempts, restartsOf } from '../../src/report/restarts.js';
import { readHistory, type RunHistory } from '../../src/report/run-history.js';
import { toTranscript, type Transcript } from '../../src/report/transcripts.js';
import { decodeWith, episodeOf, recordedRun } from './recorded-run.js';

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

/** Every tag with the names of its attributes: what a browser would build. */
function skeleton(html: string): string[] {
  return (html.match(/<[^>]*>/g) ?? []).map((tag) => tag.replace(/="[^"]*"/g, '=""'));
}

describe('a report', () => {
  let history: RunHistory;
  let common: Omit<Parameters<typeof renderReport>[0], 'history' | 'transcripts'>;
  beforeAll(async () => {
    const store = await recordedRun();
    history = await readHistory(store, 'tiny');
    const attempts = await readAttempts(store, history);
    common = {
      restarts: restartsOf(history, attempts),
      faults: faultsOf(history, attempts),
      changes: await readChanges(store, history),
      transcriptsOf: history.evaluations.at(-1) ?? null,
    };
  });

  const call = (text: string) => JSON.stringify({ name: text, arguments: { [text]: text } });
  function transcriptOf(text: string): Transcript {
    const episode = episodeOf(text, { status: 'graded', value: 0 });
    return toTranscript({ ...episode, env_key: text }, decodeWith(text, call(text), text));
  }
  const withTranscript = (transcript: Transcript): string =>
    renderReport({ ...common, history, transcripts: [transcript] });

  /** The history with each text of its records in which a person or a program has a say replaced. */
  function historyWith(text: string): RunHistory {
    const replaced = structuredClone(history);
    const { record } = replaced;
    record.run = text;
    record.spec.project = text;
    record.spec.model = { ...record.spec.model, name: text, tokenizer: text };
    record.spec.environments = [{ env_key: text, url: text, fault_rate: 0, tool_error_rate: 0 }];
    record.dataset = { ...record.dataset, name: text };
    record.base_model = text;
    for (const update of replaced.updates) {
      update.observed.engine = { ...update.observed.engine, build: text, incarnation: text };
    }
    replaced.updates.at(-1)!.identity.applied = { reason: text };
    replaced.owners = replaced.owners.map((owner) => ({ ...owner, workflowId: text, address: text }));
    for (const { result } of replaced.evaluations) {
      for (const part of Object.values(result) as unknown[]) renameEnvironments(part, text);
    }
    return replaced;
  }

  it.each(hostile)('shows %j in a transcript as text', (text) => {
    const html = withTranscript(transcriptOf(text));
    expect(skeleton(html)).toEqual(skeleton(withTranscript(transcriptOf('plain'))));
    expect(html).not.toContain(text.includes('<') ? text : '\u0007');
  });

  it.each(hostile)('shows %j in a turn that is no call as text', (text) => {
    const turn = (said: string) =>
      withTranscript(
        toTranscript(
          episodeOf('t', { status: 'unknown', reason: said, failures: 1 } as never),
          decodeWith(said, said, said),
        ),
      );
    expect(skeleton(turn(text))).toEqual(skeleton(turn('plain')));
  });

  it.each(hostile)('shows %j in the run’s records as text', (text) => {
    const render = (said: string) =>
      renderReport({
        ...common,
        history: historyWith(said),
        transcripts: [],
        changes: common.changes.map((change) => ({ ...change, what: said, at: said })),
        restarts: common.restarts.map((restart) => ({ ...restart, successor: said })),
      });
    expect(skeleton(render(text))).toEqual(skeleton(render('plain')));
  });

  it('may load and run nothing, should a text get through all the same', () => {
    const html = withTranscript(transcriptOf('plain'));
    const policy = /<meta http-equiv="Content-Security-Policy" content="([^"]*)">/.exec(html)?.[1];
    expect(policy).toBe("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'");
    expect(html).not.toMatch(/<(script|a|img|iframe|object|embed|form|base|link)\b/i);
    expect(html).not.toMatch(/<[^>]*\s(on\w+|href|src|srcdoc|action)\s*=/i);
    // Before anything that came from outside.
    expect(html.indexOf('Content-Security-Policy')).toBeLessThan(html.indexOf('<title>'));
  });
});

/** Names of environments and templates are keys of what an evaluation counted. */
function renameEnvironments(part: unknown, text: string): void {
  if (Array.isArray(part)) return part.forEach((one) => renameEnvironments(one, text));
  if (typeof part !== 'object' || part === null) return;
  const record = part as Record<string, unknown>;
  if (typeof record['env_key'] === 'string') record['env_key'] = text;
  if (typeof record['template'] === 'string') record['template'] = text;
}
