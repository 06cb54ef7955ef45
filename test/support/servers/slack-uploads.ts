// Files in Slack: an upload is offered, sent to its own address and completed; a while later, messages may name the file.
import type { IncomingMessage } from 'node:http';
import type { KnownFiles } from './slack-rules.js';

interface UploadedFile {
  id: string;
  length: number;
  bytes: Buffer | null;
  readyAt: number;
}

/** Answer of a method, with Slack's `ok`. */
export interface Answer {
  ok: boolean;
  [key: string]: unknown;
}

export class SlackUploads implements KnownFiles {
  /** Time in ms from the completion of an upload until messages may name the file. */
  readyAfterMs = 0;
  readonly files = new Map<string, UploadedFile>();

  /** `url`: address of the server. */
  offer(given: Record<string, string>, url: string): Answer | string {
    const length = Number(given.length);
    if (!given.filename || !(length > 0)) return 'invalid_arguments';
    const id = `F${String(this.files.size + 1).padStart(9, '0')}`;
    this.files.set(id, { id, length, bytes: null, readyAt: Infinity });
    return { ok: true, file_id: id, upload_url: new URL(`/upload/${id}`, url).href };
  }

  async receive(
    id: string,
    request: IncomingMessage,
    body: Buffer,
  ): Promise<{ status: number; answer: string }> {
    const file = this.files.get(id);
    const form = await new Response(new Uint8Array(body), {
      headers: { 'content-type': request.headers['content-type'] ?? '' },
    }).formData();
    const [content] = [...form.values()];
    if (!file || !(content instanceof Blob)) return { status: 404, answer: 'no such upload' };
    const bytes = Buffer.from(await content.arrayBuffer());
    if (bytes.length !== file.length)
      return { status: 400, answer: 'the file does not have the announced length' };
    file.bytes = bytes;
    return { status: 200, answer: `OK - ${bytes.length}` };
  }

  complete(given: Record<string, string>): Answer | string {
    const asked = JSON.parse(given.files ?? '[]') as { id: string; title?: string }[];
    const found = asked.map(({ id }) => this.files.get(id));
    if (found.length === 0 || found.some((file) => !file?.bytes)) return 'file_not_found';
    // With a channel Slack would post its own message, without metadata.
    if (given.channel_id !== undefined) return 'channel_not_expected_by_this_test';
    for (const file of found) if (file) file.readyAt = Date.now() + this.readyAfterMs;
    // Slack knows a file's type only after it has inspected the file.
    return { ok: true, files: asked.map(({ id, title }) => ({ id, title, mimetype: '' })) };
  }

  usable(id: string): boolean {
    const file = this.files.get(id);
    return file !== undefined && file.bytes !== null && file.readyAt <= Date.now();
  }
}
