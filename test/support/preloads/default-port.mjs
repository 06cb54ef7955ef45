// Preloaded into a command under test: connections to Temporal's default port go to the test's server instead. So the test does not need
// the default port, which may be in use.
import { Socket } from 'node:net';

const defaultPort = 7233;
const connect = Socket.prototype.connect;

Socket.prototype.connect = function (...args) {
  // `net.connect` passes its arguments as one array.
  const options = Array.isArray(args[0]) ? args[0][0] : args[0];
  const port = process.env.LONGHAUL_TEST_DEFAULT_PORT;
  if (port !== undefined && Number(options?.port) === defaultPort) options.port = Number(port);
  return connect.apply(this, args);
};
