// Selects the environment variables of `longhaul up` that each process of a stack gets: a secret reaches only the processes that need it.
// docs/security.md describes the same rules.
import { isSecretName } from '../base/secrets.js';

type StackRole = 'temporal' | 'environments' | 'orchestrator' | 'node' | 'follower';

/** Variables that any process may need, and our own. `isOrdinary` leaves out names that look like secrets. */
const ordinaryNames =
  /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|XDG_.*|NODE_.*|LD_.*|DYLD_.*|LONGHAUL_.*)$/;
/** Variables needed to reach a store, Slack, W&B or a trace receiver, perhaps through a proxy. */
const outward =
  /^(AWS_.*|OTEL_.*|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy)$/;
const ofFollower = /^(SLACK|WANDB)_/;
/** Only a node uses a Tinker server. */
const ofTinker = /^TINKER_/;
/** Keys and certificates of other Temporal servers: the stack's own server has none. */
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

/** All other variables pass: a spec may name any of them for its grading token, and specs are not known before a run. */
function mayHoldGradingTokens(name: string): boolean {
  return !ofFollower.test(name) && !ofOtherServers.test(name) && name !== 'LONGHAUL_GRADING_TOKEN';
}

export function environmentOf(role: StackRole, env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => passes[role](name)));
}
