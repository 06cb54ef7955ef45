// Uploads the chart of an evaluation to Slack, before the message that shows it. A file stays invisible until a message names it, so a lost
// or repeated upload does no harm. After a second failure the message is sent without its chart.
import type { Picture } from './blocks.js';
import { isMissingScope, type SlackApi } from './slack-api.js';
import { SlackCallFailed } from './slack-failure.js';

const fileName = 'pass-rate.png';
const tries = 2;
const noScope = 'Chart left out: the Slack app lacks the scope files:write.';

export class ChartUploads {
  private allowed = true;
  /** The uploaded chart of the event that is being posted. */
  private kept: { event: string; file: string } | null = null;
  private failures = 0;

  constructor(
    private readonly api: SlackApi,
    private readonly onMissingScope: (reason: string) => void,
  ) {}

  /** The file's id, or a text that says why there is none. Throws `SlackCallFailed` if another attempt may succeed. */
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
      // A workspace may accept messages but no files. If it refuses everything, posting the message will fail too and say so.
      const isFinal = kind === 'refused' || kind === 'lasting';
      if (!isFinal && ++this.failures < tries) throw error;
      return { missing: `Chart left out: ${reason}.` };
    }
  }

  /** Call when the event is delivered or given up. */
  forget(): void {
    this.kept = null;
    this.failures = 0;
  }
}
