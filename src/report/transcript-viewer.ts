// Episodes as conversations in the report: tool calls stand out, the chat template does not.
import { escapeHtml } from './html.js';
import {
  readableResult,
  segmentsOf,
  type Message,
  type Segment,
  type Transcript,
  type Verdict,
} from './transcripts.js';

const headings: Record<Verdict, string> = {
  fail: 'Failures',
  unknown: 'Unknown outcomes',
  pass: 'Successes',
};

export function transcriptViewer(transcripts: readonly Transcript[]): string {
  if (transcripts.length === 0) return '<p class="quiet">No episodes yet.</p>';
  const verdicts: Verdict[] = ['fail', 'unknown', 'pass'];
  return verdicts
    .map((verdict) => {
      const these = transcripts.filter((transcript) => transcript.verdict === verdict);
      if (these.length === 0) return '';
      return `<div class="group"><h3>${headings[verdict]}</h3>${these.map(viewOf).join('\n')}</div>`;
    })
    .join('\n');
}

function viewOf(transcript: Transcript): string {
  const { verdict, turns } = transcript;
  const facts = [
    transcript.task_key,
    `${turns} ${turns === 1 ? 'turn' : 'turns'}`,
    `ended by ${transcript.stop_reason}`,
    transcript.reason,
  ];
  return (
    `<details class="transcript"><summary><span class="status ${verdict}">${verdict}</span> ` +
    `<span class="request">${escapeHtml(cut(transcript.request, 160))}</span>` +
    `<span class="facts-line quiet">${escapeHtml(facts.join(' · '))}</span></summary>` +
    `<div class="talk">${transcript.messages.map(message).join('')}</div></details>`
  );
}

function message({ role, text }: Message): string {
  if (role === 'system') {
    return (
      '<details class="part system"><summary class="who">system prompt</summary>' +
      `<pre>${escapeHtml(text)}</pre></details>`
    );
  }
  if (role === 'assistant') return part('model', 'model', segmentsOf(text).map(segment).join(''));
  if (role === 'user') return part('user', 'task', `<pre>${escapeHtml(text)}</pre>`);
  const failed = /^error\b/i.test(text);
  const shown = readableResult(text.replace(/^Tool result:\n?/, ''));
  return part(
    failed ? 'result failed' : 'result',
    failed ? 'tool error' : 'tool result',
    `<pre>${escapeHtml(shown.replace(/^Error: /, ''))}</pre>`,
  );
}

function part(style: string, who: string, body: string): string {
  return `<div class="part ${style}"><span class="who">${who}</span><div>${body}</div></div>`;
}

function segment(one: Segment): string {
  switch (one.kind) {
    case 'text':
      return `<pre>${escapeHtml(one.text)}</pre>`;
    case 'done':
      return '<span class="done">done</span>';
    case 'malformed':
      return `<pre class="malformed">${escapeHtml(one.text)}</pre><span class="quiet">no valid tool call</span>`;
    case 'call': {
      const given = one.arguments.map(
        ([name, value]) => `<span class="name">${escapeHtml(name)}</span>=${escapeHtml(value)}`,
      );
      return `<code class="call"><b>${escapeHtml(one.name)}</b>(${given.join(', ')})</code>`;
    }
  }
}

function cut(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
