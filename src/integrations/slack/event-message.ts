// The text of each event in the thread of its run.
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

/** Events after a run's beginning: that is the message that these reply to. */
export type LaterEvent = Exclude<RunEvent, RunStarted>;

export interface EventMessage extends Message {
  picture: Picture | null;
  /** Shown in the channel too, not only in the thread. */
  broadcast: boolean;
}

/** `run` is its name. */
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
  const what = [`step ${whole(step)}`, sizeBytes === null ? null : size(sizeBytes)].filter(
    (part) => part !== null,
  );
  return {
    text: `Checkpoint of step ${whole(step)}`,
    blocks: [
      ...section([`:floppy_disk: *Checkpoint* — ${what.join(' · ')}`]),
      ...context([place === null ? null : code(place, valueCharacters)]),
    ],
  };
}

function evaluation(event: EvaluationDone): Message {
  const { step, suite, passAt1, before, graded, unknown, environments } = event;
  const since = before === null ? null : passRateChange(before.passAt1, passAt1);
  const change =
    before === null || since === null ? null : `${points(since)} since step ${whole(before.step)}`;
  const rate = passAt1 === null ? `pass@1 – (${nothingGraded})` : `pass@1 ${percent(passAt1)}`;
  return {
    text: `Evaluation ${plain(suite, valueCharacters)} at step ${whole(step)}: ${rate}${change === null ? '' : `, ${change}`}`,
    blocks: [
      ...section([
        `:bar_chart: *Evaluation ${code(suite)}* — step ${whole(step)}`,
        `*${rate}*${change === null ? '' : ` (${change})`} · ${whole(graded)} graded, ${whole(unknown)} unknown`,
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
  const where = step === null ? '' : `step ${whole(step)} `;
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

function paused({ step, reason, who, resumeWith, at }: RunPaused): Message {
  const where = atStep(step);
  return {
    text: `Paused${where}${reason === null ? '' : `: ${plain(reason, reasonCharacters)}`}`,
    blocks: [
      ...section([
        `:double_vertical_bar: *Paused*${where}`,
        reason === null ? null : plain(reason, reasonCharacters),
        `Resume with ${code(resumeWith, reasonCharacters)}`,
      ]),
      ...context([by(who), moment(at)]),
    ],
  };
}

function standsStill({ kind, step, reason, remedy, at }: RunStandsStill): Message {
  const title = `${kind === 'blocked' ? 'Blocked' : 'Failing'}${atStep(step)}`;
  return {
    text: `${title}: ${plain(reason, reasonCharacters)}`,
    blocks: [
      ...section([`:warning: *${title}*`, plain(reason, reasonCharacters), plain(remedy, reasonCharacters)]),
      ...context([moment(at)]),
    ],
  };
}

function resumed({ step, who, at }: RunResumed): Message {
  const where = atStep(step);
  return {
    text: `Resumed${where}`,
    blocks: [...section([`:arrow_forward: *Resumed*${where}`]), ...context([by(who), moment(at)])],
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
      ['Took', seconds === null ? null : timeSpan(seconds)],
      ['Spent', spend === null ? null : plain(spend, valueCharacters)],
    ]),
    ...section([resumeWith === null ? null : `Go on with ${code(resumeWith, reasonCharacters)}`]),
    ...context([...event.links.map(link), moment(event.at)]),
  ];
  return {
    text: fitting([`${title}: ${plain(run, valueCharacters)}`, why], textCharacters),
    blocks,
  };
}

export function stepOf(step: number, steps: number | null): string {
  return steps === null ? whole(step) : `${whole(step)} of ${whole(steps)}`;
}

function atStep(step: number | null): string {
  return step === null ? '' : ` — step ${whole(step)}`;
}

function by(who: string | null): string | null {
  return who === null ? null : `By ${plain(who, valueCharacters)}`;
}
