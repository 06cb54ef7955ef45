// Loaded into a command under test: what it sends to Temporal's default port reaches the server of the test, so that the test needs
// no port that another one may hold.
import { Socket } from 'node:net';

const defaultPort = 7233;
const connect = Socket.prototype.connect;

Socket.prototype.connect = function (...args) {
  // `net.connect` hands over its arguments as one list.
  const options = Array.isArray(args[0]) ? args[0][0] : args[0];
  const port = process.env.LONGHAUL_TEST_DEFAULT_PORT;
  if (port !== undefined && Number(options?.port) === defaultPort) options.port = Number(port);
  return connect.apply(this, args);
};
