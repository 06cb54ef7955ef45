// Text in Slack's format. All text from outside (names, reasons, commands) goes through `plain`, `code` or `link`. They remove Slack's
// markup, and cut the text before they escape it, so that no entity is cut in two.
import type { Link } from './run-event.js';

/** Maximum characters of a name, of a value in a field, and of a reason or a command. */
const nameCharacters = 120;
export const valueCharacters = 300;
export const reasonCharacters = 1000;
/** A longer URL would fill a whole block. */
const longestUrl = 1000;

const nothing = '–';
const more = '…';

/** For mrkdwn and plain text; never empty, and at most `limit` characters after escaping. */
export function plain(text: string, limit: number): string {
  return cut(oneLine(text), limit) || nothing;
}

/** As code, in one line; nothing in the text is read as markup. */
export function code(text: string, limit = nameCharacters): string {
  return `\`${plain(text.replaceAll('`', "'"), limit - 2)}\``;
}

/** A link; null if the URL is not for people or would reveal a secret. */
export function link({ label, url }: Link): string | null {
  if (!URL.canParse(url)) return null;
  const { protocol, username, password, href } = new URL(url);
  if (!['http:', 'https:'].includes(protocol) || username !== '' || password !== '') return null;
  const target = escape(href.replaceAll('|', '%7C'));
  if (target.length > longestUrl) return null;
  return `<${target}|${plain(label.replaceAll('|', '/'), nameCharacters)}>`;
}

/** A time, shown in the reader's time zone; null if it is not a date or is before Slack existed. */
export function moment(iso: string): string | null {
  const at = new Date(iso);
  if (!(at.getTime() >= 0)) return null;
  const seconds = Math.floor(at.getTime() / 1000);
  const fallback = `${at.toISOString().slice(0, 16).replace('T', ' ')} UTC`;
  return `<!date^${seconds}^{date_short_pretty} {time}|${fallback}>`;
}

export const percent = (share: number): string =>
  Number.isFinite(share) ? `${(share * 100).toFixed(1)} %` : nothing;

/** Change of a share, in percentage points, with its sign. */
export const points = (change: number): string =>
  `${change < 0 ? '−' : '+'}${(Math.abs(change) * 100).toFixed(1)} points`;

export const whole = (count: number): string =>
  Number.isFinite(count) ? Math.round(count).toLocaleString('en') : nothing;

export function size(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  const power = Math.max(0, Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3) || 0));
  const value = bytes / 1000 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[power] ?? ''}`;
}

/** `3 d 4 h`, `2 h 10 min`, `8 min`, `40 s`. */
export function timeSpan(seconds: number): string {
  if (!Number.isFinite(seconds)) return nothing;
  const total = Math.max(0, Math.round(seconds));
  if (total < 60) return `${total} s`;
  const minutes = Math.round(total / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(total / 3600);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Escapes the only three characters that Slack reads as the beginning of markup. */
function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

/** Removes control characters, characters that change the text direction, and halves of surrogate pairs. */
function oneLine(text: string): string {
  return text
    .replace(/[\p{Cc}\u2028\u2029\s]+/gu, ' ')
    .replace(/[\u202a-\u202e\u2066-\u2069]/gu, '')
    .replace(/\p{Cs}/gu, '\ufffd')
    .trim();
}

function cut(text: string, limit: number): string {
  const whole = escape(text);
  if (whole.length <= limit) return whole;
  let kept = '';
  for (const character of text) {
    const next = kept + escape(character);
    if (next.length > limit - more.length) break;
    kept = next;
  }
  return kept.trimEnd() + more;
}
