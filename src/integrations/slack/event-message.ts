// The text of each event in its run's thread.
import { alertWords, type AlertWriter } from '../../rl/alert-words.js';
import {
  altTextCharacters,
  context,
  fields,
  fitting,
  header,
  headerCharacters,
  type Message,
  type MessageBlock,
  type Picture,
  section,
  textCharacters,
} from './blocks.js';
import {
  code,
  link,
  moment,
  percent,
  plain,
  points,
  reasonCharacters,
  size,
  timeSpan,
  valueCharacters,
  whole,
} from './mrkdwn.js';
import { nothingGraded, passRateChange } from '../../spec/pass-rate.js';
import type {
  AlertRaised,
  CheckpointKept,
  EnvironmentPassRate,
  EvaluationDone,
  RunEnded,
  RunEvent,
  RunPaused,
  RunResumed,
  RunStandsStill,
  RunStarted,
} from './run-event.js';

/** Events that are posted as replies; `started` is the message to which they reply. */
export type LaterEvent = Exclude<RunEvent, RunStarted>;

interface EventMessage extends Message {
  picture: Picture | null;
  /** True if the reply is also shown in the channel, not only in the thread. */
  broadcast: boolean;
}

export function eventMessage(run: string, event: LaterEvent): EventMessage {
  switch (event.kind) {
    case 'checkpoint':
      return inThread(checkpoint(event));
    case 'evaluation':
      return { ...inThread(evaluation(event)), picture: chartOf(run, event) };
    case 'alert':
      return inThread(alert(run, event));
    case 'paused':
      return inThread(paused(event));
    case 'resumed':
      return inThread(resumed(event));
    case 'blocked':
    case 'failing':
      return inThread(standsStill(event));
    case 'completed':
    case 'failed':
    case 'cancelled':
      return { ...inThread(ended(run, event)), broadcast: true };
  }
}

function inThread(message: Message): EventMessage {
  return { ...message, picture: null, broadcast: false };
}

function checkpoint({ step, place, sizeBytes }: CheckpointKept): Message {
  return {
    text: `Checkpoint of step ${whole(step)}`,
    blocks: [
      ...section([`:floppy_disk: *Checkpoint* — step ${whole(step)} · ${size(sizeBytes)}`]),
      ...context([code(place, valueCharacters)]),
    ],
  };
}

function evaluation(event: EvaluationDone): Message {
  const { step, suite, passAt1, largest, before, graded, unknown, environments } = event;
  const since = before === null ? null : passRateChange(before.passAt1, passAt1);
  const change =
    before === null || since === null ? null : `${points(since)} since step ${whole(before.step)}`;
  const rate = passAt1 === null ? `pass@1 – (${nothingGraded})` : `pass@1 ${percent(passAt1)}`;
  return {
    text: `Evaluation ${plain(suite, valueCharacters)} at step ${whole(step)}: ${rate}${change === null ? '' : `, ${change}`}`,
    blocks: [
      ...section([
        `:bar_chart: *Evaluation ${code(suite)}* — step ${whole(step)}`,
        `*${rate}*${change === null ? '' : ` (${change})`}${largest === undefined ? '' : ` · pass@${whole(largest.k)} ${percent(largest.rate)}`} · ${whole(graded)} graded, ${whole(unknown)} unknown`,
        ...environments.map(
          (one) =>
            `• ${code(one.environment)}: ${ofGraded(one)}` +
            (one.toolErrorRate === null ? '' : `, ${percent(one.toolErrorRate)} tool errors`) +
            (one.unknown === 0 ? '' : `, ${whole(one.unknown)} unknown`),
        ),
      ]),
    ],
  };
}

function ofGraded({ passAt1, graded }: EnvironmentPassRate): string {
  return passAt1 === null ? `– (${nothingGraded})` : `${percent(passAt1)} of ${whole(graded)}`;
}

function chartOf(run: string, { step, suite, passAt1, chart }: EvaluationDone): Picture | null {
  if (chart === null) return null;
  return {
    png: chart,
    title: plain('pass@1 by step', headerCharacters),
    altText: plain(
      `Line chart of pass@1 by step of the run ${run}, suite ${suite}: ${passAt1 === null ? nothingGraded : percent(passAt1)} at step ${whole(step)}`,
      altTextCharacters,
    ),
  };
}

function alert(run: string, { step, alert: one }: AlertRaised): Message {
  const { title, line } = alertWords(one, alertWriter);
  const where = `step ${whole(step)} `;
  return {
    text: `${title} — ${where}(run: ${plain(run, valueCharacters)}): ${line}`,
    blocks: section([`:warning: *${title}* — ${where}(run: ${code(run)})`, `• ${line}`]),
  };
}

const alertWriter: AlertWriter = {
  name: (text) => code(text),
  reason: (text) => plain(text, reasonCharacters),
  percent,
  whole,
  timeSpan,
};

function paused({ reason, resumeWith, at }: RunPaused): Message {
  return {
    text: `Paused${reason === null ? '' : `: ${plain(reason, reasonCharacters)}`}`,
    blocks: [
      ...section([
        ':double_vertical_bar: *Paused*',
        reason === null ? null : plain(reason, reasonCharacters),
        `Resume with ${code(resumeWith, reasonCharacters)}`,
      ]),
      ...context([moment(at)]),
    ],
  };
}

function standsStill({ kind, step, reason, remedy, at }: RunStandsStill): Message {
  const where = step === null ? '' : ` — step ${whole(step)}`;
  const title = `${kind === 'blocked' ? 'Blocked' : 'Failing'}${where}`;
  return {
    text: `${title}: ${plain(reason, reasonCharacters)}`,
    blocks: [
      ...section([`:warning: *${title}*`, plain(reason, reasonCharacters), plain(remedy, reasonCharacters)]),
      ...context([moment(at)]),
    ],
  };
}

function resumed({ at }: RunResumed): Message {
  return {
    text: 'Resumed',
    blocks: [...section([':arrow_forward: *Resumed*']), ...context([moment(at)])],
  };
}

const endings = {
  completed: { icon: ':white_check_mark:', title: 'Completed' },
  failed: { icon: ':x:', title: 'Failed' },
  cancelled: { icon: ':no_entry_sign:', title: 'Cancelled' },
} as const;

function ended(run: string, event: RunEnded): Message {
  const { icon, title } = endings[event.kind];
  const { step, steps, passAt1, seconds, spend, reason, resumeWith } = event;
  const why = reason === null ? null : plain(reason, reasonCharacters);
  const blocks: MessageBlock[] = [
    header(`${icon} ${title}: ${plain(run, headerCharacters - 40)}`),
    ...section([why]),
    ...fields([
      ['Step', step === null ? null : stepOf(step, steps)],
      ['pass@1', passAt1 === null ? null : plain(passAt1, valueCharacters)],
      ['Took', timeSpan(seconds)],
      ['Spent', plain(spend, valueCharacters)],
    ]),
    ...section([resumeWith === null ? null : `Continue with ${code(resumeWith, reasonCharacters)}`]),
    ...context([...event.links.map(link), moment(event.at)]),
  ];
  return {
    text: fitting([`${title}: ${plain(run, valueCharacters)}`, why], textCharacters),
    blocks,
  };
}

export function stepOf(step: number, steps: number): string {
  return `${whole(step)} of ${whole(steps)}`;
}
