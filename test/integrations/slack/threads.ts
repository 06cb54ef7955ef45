// Events, run states and threads for several tests.
import type { RunEvent, RunStarted, RunStatusLine } from '../../../src/integrations/slack/run-event.js';
import {
  RunThread,
  type RunThreadOptions,
  type ThreadTiming,
} from '../../../src/integrations/slack/run-thread.js';
import type { ThreadRecord, ThreadState } from '../../../src/integrations/slack/thread-record.js';
import type { Channel, SlackServer, StoredMessage } from '../../support/servers/slack-server.js';

export const started: RunStarted = {
  id: 'started',
  kind: 'started',
  at: new Date().toISOString(),
  run: 'nightly',
  project: 'agents',
  cluster: 'temporal.example:7233, namespace default',
  task: 'crm, calendar',
  model: 'small-0.9m',
  modality: 'tool_use',
  steps: 500,
  links: [
    { label: 'Temporal', url: 'https://temporal.example/namespaces/default/workflows/train%2Fnightly' },
  ],
  who: 'robin',
  from: null,
};

const at = '2026-05-01T10:00:00.000Z';

export const evaluation = (step: number, chart: Uint8Array | null = null): RunEvent => ({
  id: `evaluation.${step}.final`,
  kind: 'evaluation',
  at,
  step,
  suite: 'final',
  passAt1: 0.625,
  before: { step: step - 10, passAt1: 0.6 },
  graded: 400,
  unknown: 3,
  environments: [{ environment: 'crm', passAt1: 0.62, toolErrorRate: 0.04, graded: 100, unknown: 3 }],
  chart,
});

export const checkpoint = (step: number): RunEvent => ({
  id: `checkpoint.${step}`,
  kind: 'checkpoint',
  at,
  step,
  place: `checkpoints/agents/small/nightly/global_step_${step}`,
  sizeBytes: 1_234_000_000,
});

export const toolErrors = (step: number): RunEvent => ({
  id: `alert.tool_error_rate.crm.${step}`,
  kind: 'alert',
  at,
  step,
  alert: { about: 'tool_error_rate', environment: 'crm', rate: 0.62, threshold: 0.5 },
});

export const paused: RunEvent = {
  id: 'paused.3',
  kind: 'paused',
  at,
  reason: 'the budget of GPU hours is spent',
  resumeWith: 'longhaul resume nightly',
};

export const completed: RunEvent = {
  id: 'ended',
  kind: 'completed',
  at,
  step: 500,
  steps: 500,
  passAt1: '87.0 %',
  seconds: 90_061,
  spend: '12.40 USD',
  reason: null,
  resumeWith: null,
  links: [],
};

export const status = (step: number): RunStatusLine => ({
  at,
  step,
  steps: 500,
  phase: 'collect',
  mood: 'running',
  passAt1: { step: 0, value: 0.31 },
  etaSeconds: (500 - step) * 60,
  spend: '1.20 of 50 USD',
  note: null,
  resumeWith: null,
});

/** The first event, then `count` events of several kinds, then the last event. */
export function history(count: number): RunEvent[] {
  const middle = Array.from({ length: count }, (_, index) => {
    const step = 10 * (index + 1);
    return [checkpoint, toolErrors, (one: number) => evaluation(one)][index % 3]!(step);
  });
  return [started, ...middle, completed];
}

/** Stores like a file: what is saved is text, and what is loaded is a copy. */
export class KeptState implements ThreadState {
  text: string | null = null;
  load = async (): Promise<unknown> => (this.text === null ? null : JSON.parse(this.text));
  save = async (record: ThreadRecord): Promise<void> => {
    this.text = JSON.stringify(record);
  };
}

export const fast: Partial<ThreadTiming> = {
  giveUpAfterMs: 60_000,
  firstPauseMs: 5,
  longestPauseMs: 20,
  restMs: 20,
  postEveryMs: 0,
  editEveryMs: 0,
  settleMs: 40,
  pictureWaitMs: 1_000,
};

export interface OpenThread {
  thread: RunThread;
  told: string[];
  stop: AbortController;
}

export function openThread(
  server: SlackServer,
  state: ThreadState,
  options: Omit<Partial<RunThreadOptions>, 'access' | 'timing'> & {
    channel?: string;
    callTimeoutMs?: number;
    pagingPatienceMs?: number;
    token?: RunThreadOptions['access']['token'];
    timing?: Partial<ThreadTiming>;
  } = {},
): OpenThread {
  const { channel, callTimeoutMs = 2_000, pagingPatienceMs, token, timing, ...others } = options;
  const told: string[] = [];
  const stop = new AbortController();
  const thread = new RunThread({
    access: {
      token: token ?? (() => server.token),
      tokenName: 'SLACK_BOT_TOKEN',
      channel: channel ?? server.training.id,
      apiUrl: server.url,
      callTimeoutMs,
      ...(pagingPatienceMs === undefined ? {} : { pagingPatienceMs }),
    },
    started,
    key: 'dir:/store nightly',
    state,
    stop: stop.signal,
    report: (line) => told.push(line),
    timing: { ...fast, ...timing },
    ...others,
  });
  return { thread, told, stop };
}

export const idOf = ({ metadata }: StoredMessage): unknown => metadata?.event_payload.id;

/** Ids of all messages that the bot has posted, in the channel's order; the first is the thread's first message. */
export function toldIn(channel: Channel): unknown[] {
  return channel.messages.filter(({ bot }) => bot === 'longhaul').map(idOf);
}
