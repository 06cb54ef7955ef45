// Whether a host can be downloaded from, known before minutes are spent on what comes before the download.
import { connect } from 'node:net';

const timeoutMs = 8_000;
/** @type {Map<string, Promise<boolean>>} */
const answers = new Map();

/** Asked once a host. Where a proxy is configured, it is the proxy that must answer. */
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

/** Looking the name up counts into the time limit. */
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
