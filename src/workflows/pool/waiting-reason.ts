// Says why a request for a node waits, for people.
import type { LeaseRequest } from '../../activities/contracts.js';
import {
  nameOfNumerics,
  offersModel,
  sameNumerics,
  type NeededNumerics,
  type Numerics,
} from '../../spec/records/numerics.js';
import type { WaitingLease } from '../messages.js';

/** A node as a waiting request sees it. */
interface CandidateNode {
  id: string;
  numerics?: Numerics;
  /** A run's work has timed out on it. */
  suspected: boolean;
  /** Ids of the workflows that hold the node. */
  holders: readonly string[];
}

/** Nodes in a fixed order, so that the reason does not change from call to call. */
interface NodesAtHand {
  /** Nodes that the request may use at all. */
  within: readonly CandidateNode[];
  alive: readonly string[];
  draining: readonly string[];
}

/** How many nodes or runs a reason names at most. */
const named = 4;

export function waitingReason(request: LeaseRequest, { within, alive, draining }: NodesAtHand): WaitingLease {
  const { lease, run, numerics, served, backend } = request;
  if (within.length === 0 && alive.length > 0)
    return { lease, cause: 'busy', why: `no node except ${listed(alive)} is alive` };
  if (within.length === 0) {
    const why =
      draining.length > 0 ? `all living nodes are draining (${listed(draining)})` : 'no node is alive';
    return { lease, cause: 'none', why };
  }
  const fitting = within.filter((node) => mayFit(request, node.numerics));
  if (fitting.length === 0) {
    const offers = within.map(
      ({ id, numerics: own }) => `${id} computes with ${own ? nameOfNumerics(own) : '?'}`,
    );
    const lacking = numerics
      ? `no living node has numerics ${nameOfNumerics(numerics)}, which ${run} was computed with (other numerics give ` +
        'other results)'
      : `no living node ${served === undefined ? `computes with numerics ${backend ?? 'cpu'}` : `has ${served} on a Tinker server`}, as ${run} needs`;
    return { lease, cause: 'unfit', why: `${lacking}: ${listed(offers)}`, remedy: unfitRemedy(request) };
  }
  const held = fitting.map(({ id, suspected, holders }) =>
    suspected
      ? `work on node ${id} timed out, and the node has not reported since`
      : `node ${id} is held by ${listed(holders)}`,
  );
  return { lease, cause: 'busy', why: listed(held) };
}

/** Only the remedy that applies to this run; for example, a run without an engine's numerics cannot be rebased. */
function unfitRemedy({ run, numerics, served, backend }: LeaseRequest): string {
  const model = numerics?.model ?? served;
  if (model !== undefined)
    return (
      `Start a node on the Tinker server: stop the stack, and start it with LONGHAUL_TINKER=URL, LONGHAUL_TINKER_SERVICE=${numerics?.service ?? 'a name of your choice'} ` +
      `and LONGHAUL_SERVED_MODEL=${model} (a node worker elsewhere takes the same variables)`
    );
  if (numerics === null)
    return `Start a node with such an engine: \`longhaul up\` without LONGHAUL_TINKER${backend === undefined ? '' : ` and with LONGHAUL_NUMERICS=${backend}`}`;
  return (
    'Start the node worker again with the engine that the reason asks for. If no such engine exists any more, switch the run to other ' +
    `numerics: longhaul rebase ${run} --numerics …`
  );
}

/** True if the node's numerics are the run's (equal numerics give equal states, R18), or are not reported yet. */
export function mayFit(
  { numerics, ...needed }: Pick<LeaseRequest, 'numerics' | keyof NeededNumerics>,
  offered: Numerics | undefined,
): boolean {
  if (!offered) return true;
  return numerics ? sameNumerics(numerics, offered) : offersModel(offered, needed);
}

function listed(parts: readonly string[]): string {
  const rest = parts.length - named;
  return rest > 1 ? `${parts.slice(0, named).join(', ')} and ${rest} more` : parts.join(', ');
}
