// The first message of a run's thread: what the run is, and its current state. It is edited while the run continues.
import {
  context,
  fields,
  fitting,
  header,
  headerCharacters,
  type Message,
  section,
  textCharacters,
} from './blocks.js';
import { stepOf } from './event-message.js';
import {
  code,
  link,
  moment,
  percent,
  plain,
  reasonCharacters,
  timeSpan,
  valueCharacters,
  whole,
} from './mrkdwn.js';
import { nothingGraded } from '../../spec/pass-rate.js';
import type { RunStarted, RunStatusLine } from './run-event.js';

const icons: Record<RunStatusLine['mood'], string> = {
  running: ':arrow_forward:',
  waiting: ':double_vertical_bar:',
  completed: ':white_check_mark:',
  failed: ':x:',
  cancelled: ':no_entry_sign:',
};

/** Events that could not be posted to the thread. */
export interface Undelivered {
  count: number;
  /** Reason for the last of these events. */
  reason: string;
}

/** `status`: null until the first state is known. */
export function statusMessage(
  started: RunStarted,
  status: RunStatusLine | null,
  undelivered: Undelivered | null,
): Message {
  const phase = status?.phase ?? 'starting';
  const step = stepOf(status?.step ?? 0, status?.steps ?? started.steps);
  const name = plain(started.run, headerCharacters - 40);
  const note = status?.note ?? null;
  return {
    text: fitting(
      [
        `${plain(started.run, valueCharacters)}: ${plain(phase, valueCharacters)}${status === null ? '' : `, step ${step}`}`,
        note === null ? null : plain(note, reasonCharacters),
      ],
      textCharacters,
    ),
    blocks: [
      header(`${icons[status?.mood ?? 'running']} ${name}`),
      ...fields([
        ['Phase', plain(phase, valueCharacters)],
        ['Step', step],
        ['pass@1', passRate(status)],
        ['Time left', status?.etaSeconds == null ? null : `about ${timeSpan(status.etaSeconds)}`],
        ['Spent', status && value(status.spend)],
      ]),
      ...section([
        note === null ? null : `:information_source: ${plain(note, reasonCharacters)}`,
        status?.resumeWith == null ? null : `Continue with ${code(status.resumeWith, reasonCharacters)}`,
      ]),
      ...fields([
        ['Cluster', value(started.cluster)],
        ['Task', value(started.task)],
        ['Model', value(started.model)],
        ['Modality', value(started.modality)],
        ['Project', value(started.project)],
        ['Continues from', origin(started)],
      ]),
      ...context([`Started by ${value(started.who)}`, moment(started.at), ...started.links.map(link)]),
      ...context([
        status === null ? null : updated(status.at),
        undelivered === null
          ? null
          : `:warning: ${whole(undelivered.count)} ${undelivered.count === 1 ? 'message' : 'messages'} could not be delivered: ${plain(undelivered.reason, valueCharacters)}`,
      ]),
    ],
  };
}

function passRate(status: RunStatusLine | null): string | null {
  if (!status?.passAt1) return null;
  const { step, value: rate } = status.passAt1;
  return rate === null
    ? `– (step ${whole(step)}: ${nothingGraded})`
    : `${percent(rate)} (step ${whole(step)})`;
}

function value(text: string): string {
  return plain(text, valueCharacters);
}

function origin({ from }: RunStarted): string | null {
  return from === null ? null : `${code(from.run)}, step ${whole(from.step)}`;
}

function updated(at: string): string | null {
  const when = moment(at);
  return when === null ? null : `As of ${when}`;
}
