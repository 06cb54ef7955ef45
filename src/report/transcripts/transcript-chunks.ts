// Transcripts beside the page, in files of some hundred kilobytes that it loads on demand. A page opened from a folder may not fetch its
// neighbours, but it may run them: so each is a script that hands over one string. Nothing in it is code.
import { sha256Hex } from '../../base/sha256.js';
import { readableResult, segmentsOf, type Message, type Segment, type Transcript } from './transcripts.js';

/** A part of a conversation as the page builds it. Numbers are places in the chunk's `texts`, because prompts are alike. */
export type TalkPart =
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

/** Size in characters at which a chunk is finished: it loads in some milliseconds. */
const chunkChars = 256 * 1024;
/** A call may have sampled without end, and a tool answered so: a longer text is cut, and says so. */
const textChars = 64 * 1024;

/** Collects transcripts; `onChunk` is awaited with each chunk that is full. */
export class ChunkWriter {
  private open: TranscriptChunk = { texts: [], transcripts: [] };
  private places = new Map<string, number>();
  private chars = 0;
  private finished = 0;

  constructor(private readonly onChunk: (chunk: FinishedChunk) => Promise<void>) {}

  /** Where it will be found: the number of the chunk, and the place in it. */
  async add(transcript: Transcript): Promise<{ chunk: number; at: number }> {
    if (this.chars >= chunkChars) await this.finish();
    const place = { chunk: this.finished, at: this.open.transcripts.length };
    const talk = transcript.messages.map((message) => this.part(message));
    this.chars += 40;
    this.open.transcripts.push({ reason: transcript.reason, talk });
    return place;
  }

  /** Ends the open chunk, so that what follows begins another. */
  async finish(): Promise<void> {
    if (this.open.transcripts.length === 0) return;
    const content = JSON.stringify(this.open);
    this.open = { texts: [], transcripts: [] };
    this.places = new Map();
    this.chars = 0;
    this.finished += 1;
    await this.onChunk({ name: sha256Hex(Buffer.from(content)).slice(0, 16), content });
  }

  private part({ role, text }: Message): TalkPart {
    if (role === 'assistant') {
      this.chars += text.length;
      return ['model', segmentsOf(cut(text))];
    }
    if (role === 'system') return ['system', this.text(text)];
    if (role === 'user') return ['task', this.text(text)];
    const failed = /^error\b/i.test(text);
    const plain = readableResult(text.replace(/^Tool result:\n?/, '')).replace(/^Error: /, '');
    return [failed ? 'error' : 'result', this.text(plain)];
  }

  private text(text: string): number {
    const shown = cut(text);
    const known = this.places.get(shown);
    if (known !== undefined) return known;
    const place = this.open.texts.push(shown) - 1;
    this.places.set(shown, place);
    this.chars += shown.length;
    return place;
  }
}

/** The file of a chunk. For any transcripts, it is one call with two string literals. */
export function chunkScript({ name, content }: FinishedChunk): string {
  return `longhaulChunk(${JSON.stringify(name)}, ${inMarkup(JSON.stringify(content))});\n`;
}

/** JSON that may stand in a page or be taken for one. */
export function inMarkup(json: string): string {
  return json.replaceAll('<', '\\u003c').replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029');
}

function cut(text: string): string {
  return text.length <= textChars ? text : `${text.slice(0, textChars)}\n[cut: ${text.length} characters]`;
}
