// `longhaul audit` of a run on a Tinker server: what it proves there, and a replay that is paid for.
import {
  planServedReplay,
  replayServed,
  type ServedReplay,
  type ServedReplayPlan,
} from '../../activities/reports/replay-served.js';
import type { ReplayRange } from '../../activities/reports/replay-audit.js';
import { whole } from '../../report/format.js';
import type { ChainAudit } from '../../store/audit/chain-audit.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openTinkerService } from '../../workers/node/policies.js';
import { tinkerOf } from '../../workers/process/config.js';
import { withElapsedLine } from '../elapsed-line.js';

export interface SpendFlags {
  spend?: boolean;
  tinker?: string;
}

/** What an audit proves of a run on a Tinker server. */
interface ServedProofs {
  order: boolean;
  recordedOnce: boolean;
  /** True if the replayed steps are in the weights once. Null without a replay, or if it could not distinguish each step from the one before. */
  weights: boolean | null;
  /** Nobody can hash the server's weights: its states are named for their batches (R32). */
  bits: false;
}

type PaidReplay = ServedReplayPlan & { url: string };

/** For an interactive command; a run waits longer. */
const maxWaitMs = 60_000;

export function servedProofs({ violations }: ChainAudit, replay: ServedReplay | null): ServedProofs {
  const holds = violations.length === 0;
  return { order: holds, recordedOnce: holds, weights: replay && provesWeights(replay), bits: false };
}

function provesWeights({ within, toldApart, updates }: ServedReplay): boolean | null {
  if (!within) return false;
  return toldApart === updates ? true : null;
}

export function servedProofsLine({ violations }: ChainAudit, replays: boolean): string {
  const proven =
    violations.length === 0 ? 'the order of all batches, and that each is in the records once; ' : '';
  return `  proves       ${proven}the weights on the server ${replays ? 'are compared below' : 'were not checked (--replay does)'}`;
}

/** Throws, and names the price, unless the replay is paid for and the server is named. */
export async function paidReplay(
  store: ObjectStore,
  run: string,
  range: ReplayRange,
  { spend, tinker }: SpendFlags,
): Promise<PaidReplay> {
  const plan = await planServedReplay(store, run, range);
  const server = tinkerOf(tinker ?? null, null, null);
  if (spend && server) return { ...plan, url: server.url };
  throw new Error(`${priceText(plan)}: ${mendText(spend === true, server !== null)}`);
}

function priceText({
  run,
  from,
  to,
  start,
  updates,
  trainedTokens,
  comparedTokens,
}: ServedReplayPlan): string {
  const beginning = start === 0 ? 'fresh adapters' : `the saved state of step ${start}`;
  return (
    `a replay of steps ${from}..${to} of ${run} trains a model on its Tinker server, which may cost money: it begins with ${beginning}, ` +
    `applies ${updates === 1 ? '1 update' : `${whole(updates)} updates`} of ${whole(trainedTokens)} tokens, and computes the log-probs ` +
    `of ${whole(comparedTokens)} tokens`
  );
}

function mendText(spend: boolean, named: boolean): string {
  const server = 'name the server with --tinker URL or LONGHAUL_TINKER, and put its key in TINKER_API_KEY';
  if (spend) return server;
  return `add --spend to allow it${named ? '' : `, and ${server}`}`;
}

/** Ctrl-C ends the replay after its models are unloaded; a second one ends it at once. */
export async function replayOnServer(
  store: ObjectStore,
  { url, ...plan }: PaidReplay,
): Promise<ServedReplay> {
  const interrupted = new AbortController();
  const interrupt = (): void =>
    interrupted.abort(new Error('interrupted: the models of the replay were unloaded'));
  const service = openTinkerService(url);
  process.once('SIGINT', interrupt);
  try {
    return await withElapsedLine(`replaying steps ${plan.start + 1}..${plan.to} of ${plan.run}`, (at) => {
      const onWaiting = ({ reason }: { reason?: string }): void => void (reason && at(reason));
      const waiting = { signal: interrupted.signal, maxWaitMs, onWaiting };
      return replayServed({ store, service, waiting, at, log: (message) => console.error(message) }, plan);
    });
  } finally {
    process.off('SIGINT', interrupt);
    service.close();
  }
}

export function servedReplayText(replay: ServedReplay): string {
  const { start, from, to, saved, places, mean, max, moved, tolerance, within, seconds } = replay;
  const { updates, bound, toldApart, differs } = replay;
  const beginning = start === 0 ? 'fresh adapters' : `the saved state of step ${start}`;
  return [
    `replay of steps ${from}..${to} on the Tinker server, from ${beginning}, in ${seconds.toFixed(1)} s`,
    `  compared with  ${saved}, the saved state of step ${to}`,
    `  log-probs      mean |Δ| ${figure(mean)}, max |Δ| ${figure(max)}, at the ${whole(places)} places that step ${to} trains on`,
    `  bound          mean |Δ| ≤ ${figure(tolerance)}, ${
      bound === 'moved' ? `half of what step ${to} moved` : `model.served.${bound}`
    }: ${within ? 'within' : 'DIFFERS'}${differs === null ? '' : ` after step ${differs}`}`,
    `  steps          ${whole(toldApart)} of ${whole(updates)} can be told from the step before by log-probs recorded with them`,
    `  for scale      the replayed updates moved these log-probs by ${figure(moved)} on average${
      moved > tolerance ? '' : ', less than the bound: compare the figures'
    }`,
    '  log-probs show that the weights act alike; they prove no bits',
  ].join('\n');
}

function figure(value: number): string {
  return value === 0 ? '0' : value.toPrecision(3);
}
