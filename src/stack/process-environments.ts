// Which parts of the environment of `longhaul up` each process of a stack gets: a secret reaches the process that needs it, and no other.
// docs/security.md says the same.
import { isSecretName } from '../base/secrets.js';

export type StackRole = 'temporal' | 'environments' | 'orchestrator' | 'node' | 'follower';

/** Variables that any process may need to run at all, and our own, except those that hold a secret by their name. */
const ordinaryNames =
  /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|XDG_.*|NODE_.*|LD_.*|DYLD_.*|LONGHAUL_.*)$/;
/** To reach a store, Slack, W&B or a receiver of traces through any proxy in between. */
const outward =
  /^(AWS_.*|OTEL_.*|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy)$/;
const ofFollower = /^(SLACK|WANDB)_/;
/** A node alone trains on a Tinker server. */
const ofTinker = /^TINKER_/;
/** The stack's own server has neither keys nor certificates: a profile's are for another server. */
const ofOtherServers = /^TEMPORAL_(API_KEY|TLS_.*|GRPC_META_.*|CODEC_.*)$/;

const passes: Record<StackRole, (name: string) => boolean> = {
  temporal: isOrdinary,
  environments: isOrdinary,
  follower: (name) => isOrdinary(name) || outward.test(name) || ofFollower.test(name),
  orchestrator: (name) => mayHoldGradingTokens(name) && !ofTinker.test(name),
  node: mayHoldGradingTokens,
};

function isOrdinary(name: string): boolean {
  return ordinaryNames.test(name) && !isSecretName(name);
}

/** A spec names the variable of its grading token, by any name: it is not known before the run. */
function mayHoldGradingTokens(name: string): boolean {
  return !ofFollower.test(name) && !ofOtherServers.test(name) && name !== 'LONGHAUL_GRADING_TOKEN';
}

export function environmentOf(role: StackRole, env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => passes[role](name)));
}
