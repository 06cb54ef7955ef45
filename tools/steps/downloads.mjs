// Checks whether a host can be reached for a download, before minutes are spent on the steps before it.
import { connect } from 'node:net';

const timeoutMs = 8_000;
/** @type {Map<string, Promise<boolean>>} */
const answers = new Map();

/** Each host is asked only once. If a proxy is configured, the proxy must answer. */
export function isReachable(host) {
  const known = answers.get(host) ?? answersAt(proxy() ?? { host, port: 443 });
  answers.set(host, known);
  return known;
}

function proxy() {
  const address = process.env.HTTPS_PROXY || process.env.https_proxy;
  if (!address) return null;
  const text = address.includes('://') ? address : `http://${address}`;
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  return { host: url.hostname, port: Number(url.port) || (url.protocol === 'https:' ? 443 : 80) };
}

/** The time limit includes the look-up of the name. */
function answersAt({ host, port }) {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const limit = setTimeout(() => settle(false), timeoutMs);
    const settle = (answer) => {
      clearTimeout(limit);
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => settle(true)).once('error', () => settle(false));
  });
}
