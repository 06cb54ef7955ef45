// Posts a run's events to Slack from the beginning, whatever was posted before, until it is done or killed. Arguments: the folder of the
// thread's record, Slack's address, the channel. The token is in SLACK_BOT_TOKEN.
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { RunThread } from '../../../src/integrations/slack/run-thread.js';
import { fast, history, started } from './threads.js';

const [folder = '', apiUrl = '', channel = ''] = process.argv.slice(2);
const file = join(folder, 'thread.json');
const thread = new RunThread({
  access: {
    token: () => process.env.SLACK_BOT_TOKEN ?? '',
    tokenName: 'SLACK_BOT_TOKEN',
    channel,
    apiUrl,
    callTimeoutMs: 2_000,
  },
  started,
  key: 'dir:/store nightly',
  state: {
    load: async () => {
      try {
        return JSON.parse(await readFile(file, 'utf8')) as unknown;
      } catch {
        return null;
      }
    },
    save: async (record) => {
      await writeFile(`${file}.new`, JSON.stringify(record));
      await rename(`${file}.new`, file);
    },
  },
  stop: new AbortController().signal,
  report: (line) => console.error(line),
  timing: { ...fast, settleMs: 20, postEveryMs: 3 },
});

for (const event of history(150)) {
  const { outcome } = await thread.deliver(event);
  if (outcome !== 'delivered') process.exit(1);
}
process.exit(0);
