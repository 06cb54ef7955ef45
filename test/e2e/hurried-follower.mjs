// The compiled follower with short pauses of its Slack threads.
import { defaultTiming } from '../../dist/integrations/slack/run-thread.js';

Object.assign(defaultTiming, { restMs: 1_000, settleMs: 1_000 });

await import('../../dist/workers/follower-main.js');
