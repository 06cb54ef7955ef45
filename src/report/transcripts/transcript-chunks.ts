// Writes transcripts to files of some hundred kilobytes beside the page, which loads them on demand. A page opened from a folder may not
// fetch files, but it may run scripts: so each file is a script that passes one string to the page. Text in the string is never run as
// code.
import { sha256Hex } from '../../base/sha256.js';
import { readableResult, type Message, type Transcript } from './transcripts.js';
import { cutSegments, cutText, type Segment } from './turn-segments.js';

/**
 * A part of a conversation as the page builds it. Numbers are indexes into the chunk's `texts`: prompts are alike, so equal texts are
 * stored once.
 */
type TalkPart =
  [who: 'system' | 'task' | 'result' | 'error', text: number] | [who: 'model', segments: Segment[]];

export interface TranscriptChunk {
  texts: string[];
  transcripts: { reason: string; talk: TalkPart[] }[];
}

export interface FinishedChunk {
  /** First 16 digits of the content's sha256. */
  name: string;
  /** JSON of a `TranscriptChunk`. */
  content: string;
}

/** A chunk is finished at this size, in characters. It then loads within some milliseconds. */
const chunkChars = 256 * 1024;
/** Limit of one text. A model may sample without end and a tool may answer at any length: a longer text is cut, and says so. */
const textChars = 64 * 1024;

/** Collects transcripts. When a chunk is full, calls `onChunk` and awaits it. */
export class ChunkWriter {
  private open: TranscriptChunk = { texts: [], transcripts: [] };
  private places = new Map<string, number>();
  private chars = 0;
  private finished = 0;

  constructor(private readonly onChunk: (chunk: FinishedChunk) => Promise<void>) {}

  /** Returns where the transcript is: the number of the chunk, and the index in it. */
  async add(transcript: Transcript): Promise<{ chunk: number; at: number }> {
    if (this.chars >= chunkChars) await this.finish();
    const place = { chunk: this.finished, at: this.open.transcripts.length };
    const talk = transcript.messages.map((message) => this.part(message));
    this.chars += 40;
    this.open.transcripts.push({ reason: transcript.reason, talk });
    return place;
  }

  /** Ends the open chunk, so that the next transcript begins a new one. */
  async finish(): Promise<void> {
    if (this.open.transcripts.length === 0) return;
    const content = JSON.stringify(this.open);
    this.open = { texts: [], transcripts: [] };
    this.places = new Map();
    this.chars = 0;
    this.finished += 1;
    await this.onChunk({ name: sha256Hex(Buffer.from(content)).slice(0, 16), content });
  }

  private part(message: Message): TalkPart {
    const { role, text } = message;
    if (message.role === 'assistant') {
      this.chars += Math.min(text.length, textChars);
      return ['model', cutSegments(message.segments, textChars)];
    }
    if (role === 'system') return ['system', this.text(text)];
    if (role === 'user') return ['task', this.text(text)];
    const failed = /^error\b/i.test(text);
    const plain = readableResult(text.replace(/^Tool result:\n?/, '')).replace(/^Error: /, '');
    return [failed ? 'error' : 'result', this.text(plain)];
  }

  private text(text: string): number {
    const shown = cutText(text, textChars);
    const known = this.places.get(shown);
    if (known !== undefined) return known;
    const place = this.open.texts.push(shown) - 1;
    this.places.set(shown, place);
    this.chars += shown.length;
    return place;
  }
}

/** The file of a chunk: one call with two string literals, whatever the transcripts contain. */
export function chunkScript({ name, content }: FinishedChunk): string {
  return `longhaulChunk(${JSON.stringify(name)}, ${inMarkup(JSON.stringify(content))});\n`;
}

/** Escapes JSON so that it can be embedded in a page, where it cannot end its script element. */
export function inMarkup(json: string): string {
  return json.replaceAll('<', '\\u003c').replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029');
}
