// The blocks of messages, within Slack's limits: Slack refuses a whole message if one block exceeds them (`invalid_blocks`). Texts arrive
// as complete markup (`mrkdwn.ts`), so a list that is too long loses whole lines.

const mostBlocks = 50;
const mostFields = 10;
export const headerCharacters = 150;
const sectionCharacters = 3000;
const fieldCharacters = 2000;
/** Length of the text for notifications and screen readers. Slack accepts ten times as much, but recommends this limit. */
export const textCharacters = 4000;
export const altTextCharacters = 2000;
const between = '  |  ';

interface PlainText {
  type: 'plain_text';
  text: string;
  emoji: true;
}

/** `verbatim`: Slack must not turn words into links or mentions. */
interface Mrkdwn {
  type: 'mrkdwn';
  text: string;
  verbatim: true;
}

export type MessageBlock =
  | { type: 'header'; text: PlainText }
  | { type: 'section'; text: Mrkdwn }
  | { type: 'section'; fields: Mrkdwn[] }
  | { type: 'context'; elements: Mrkdwn[] }
  | { type: 'image'; slack_file: { id: string }; alt_text: string; title: PlainText };

export interface Message {
  /** Text for notifications and screen readers; the blocks contain it, and more. */
  text: string;
  blocks: MessageBlock[];
}

export interface Picture {
  png: Uint8Array;
  /** `altText` and `title` are escaped, and at most `ALT_TEXT_CHARACTERS` and `HEADER_CHARACTERS` long. */
  altText: string;
  title: string;
}

const mrkdwn = (text: string): Mrkdwn => ({ type: 'mrkdwn', text, verbatim: true });
const plainText = (text: string): PlainText => ({ type: 'plain_text', text, emoji: true });

/** `text` must be at most `HEADER_CHARACTERS`. */
export function header(text: string): MessageBlock {
  return { type: 'header', text: plainText(text) };
}

/** As many of `lines` as fit into one section; the last line counts those left out. Returns no block if there are no lines. */
export function section(lines: readonly (string | null)[]): MessageBlock[] {
  const text = fitting(lines, sectionCharacters);
  return text === '' ? [] : [{ type: 'section', text: mrkdwn(text) }];
}

/** Labels with their values below, side by side, in as many blocks as necessary; leaves out null values. */
export function fields(named: readonly (readonly [label: string, value: string | null])[]): MessageBlock[] {
  const known = named.flatMap(([label, value]) => {
    const text = `*${label}*\n${value}`;
    return value === null || text.length > fieldCharacters ? [] : [mrkdwn(text)];
  });
  const blocks: MessageBlock[] = [];
  for (let start = 0; start < known.length; start += mostFields)
    blocks.push({ type: 'section', fields: known.slice(start, start + mostFields) });
  return blocks;
}

/** One line of small print, with a bar between its parts. Returns no block if there are no parts. */
export function context(parts: readonly (string | null)[]): MessageBlock[] {
  const kept = parts.filter((part) => part !== null);
  while (kept.join(between).length > sectionCharacters) kept.pop();
  return kept.length === 0 ? [] : [{ type: 'context', elements: [mrkdwn(kept.join(between))] }];
}

/** The message with a picture, which Slack has stored under the id `file`. */
export function withPicture(message: Message, picture: Picture, file: string): Message {
  const image: MessageBlock = {
    type: 'image',
    slack_file: { id: file },
    alt_text: picture.altText,
    title: plainText(picture.title),
  };
  return { ...message, blocks: [...message.blocks.slice(0, mostBlocks - 1), image] };
}

/** The message with a line of small print at the end. */
export function withNote(message: Message, note: string): Message {
  return { ...message, blocks: [...message.blocks.slice(0, mostBlocks - 1), ...context([note])] };
}

/** The lines that fit into `limit` characters, then the number of those that do not. */
export function fitting(lines: readonly (string | null)[], limit: number): string {
  const all = lines.filter((line) => line !== null);
  const text = all.join('\n');
  if (text.length <= limit) return text;
  for (let kept = all.length - 1; kept > 0; kept--) {
    const shortened = [...all.slice(0, kept), `… and ${all.length - kept} more`].join('\n');
    if (shortened.length <= limit) return shortened;
  }
  return `… ${all.length} lines that are too long to show`;
}
