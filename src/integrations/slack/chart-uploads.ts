// Uploads the chart of an evaluation to Slack before the message that shows it. An upload that no message names is invisible, so a lost or
// repeated one does no harm. A message is worth more than its picture: after a second failure it goes without.
import type { Picture } from './blocks.js';
import { isMissingScope, type SlackApi } from './slack-api.js';
import { SlackCallFailed } from './slack-failure.js';

const fileName = 'pass-rate.png';
const tries = 2;
const noScope = 'Chart left out: the Slack app lacks the scope files:write.';

export class ChartUploads {
  private readonly api: SlackApi;
  private readonly onMissingScope: (reason: string) => void;
  private allowed = true;
  /** The chart of the event that is being posted. */
  private kept: { event: string; file: string } | null = null;
  private failures = 0;

  constructor(api: SlackApi, onMissingScope: (reason: string) => void) {
    this.api = api;
    this.onMissingScope = onMissingScope;
  }

  /** The file's id, or what to say if there is none. Throws `SlackCallFailed` if another try may succeed. */
  async uploaded(event: string, { png, altText }: Picture): Promise<{ file: string } | { missing: string }> {
    if (this.kept?.event === event) return this.kept;
    if (!this.allowed) return { missing: noScope };
    try {
      this.kept = { event, file: await this.api.upload(png, fileName, altText) };
      return this.kept;
    } catch (error) {
      if (!(error instanceof SlackCallFailed)) throw error;
      if (isMissingScope(error)) {
        this.allowed = false;
        this.onMissingScope(error.message);
        return { missing: noScope };
      }
      const { kind, reason } = error.failure;
      // A workspace may accept messages and no files. If everything is refused, the message itself meets that next.
      const isFinal = kind === 'refused' || kind === 'lasting';
      if (!isFinal && ++this.failures < tries) throw error;
      return { missing: `Chart left out: ${reason}.` };
    }
  }

  /** Once the event is delivered, or given up. */
  forget(): void {
    this.kept = null;
    this.failures = 0;
  }
}
