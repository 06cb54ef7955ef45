// An OpenEnv server that lists tasks and does nothing else.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';
import type { Task } from '../../src/spec/records/task.js';

interface TaskServer {
  /** Address of its tasks, as a spec names it. */
  address: string;
  /** Tasks that it lists, each in its split; a test may replace them. */
  tasks: readonly Pick<Task, 'split'>[];
  /** How many requests it still refuses with `status`. */
  refusals: number;
  status: number;
  /** Requests that it has got. */
  requests: number;
  /** Whether it leaves requests without an answer. */
  isSilent: boolean;
  stop(): Promise<void>;
}

/** `port`: absent for any free one. */
export async function startTaskServer(tasks: TaskServer['tasks'], port = 0): Promise<TaskServer> {
  const http = createServer((request, response) => {
    void text(request).then((body) => {
      server.requests += 1;
      if (server.isSilent) return;
      if (server.refusals > 0) {
        server.refusals -= 1;
        response.writeHead(server.status).end('<html>no server is ready</html>');
        return;
      }
      const asked = JSON.parse(body) as { split: string; start?: number; stop?: number };
      const listed = server.tasks.filter(({ split }) => split === asked.split);
      const counts = request.url?.endsWith('/num_tasks') === true;
      response.end(
        JSON.stringify(
          counts ? { num_tasks: listed.length } : { tasks: listed.slice(asked.start, asked.stop) },
        ),
      );
    });
  });
  http.listen(port, '127.0.0.1');
  await once(http, 'listening');
  const server: TaskServer = {
    address: `openenv+http://127.0.0.1:${(http.address() as AddressInfo).port}/tracker?held_out=held_out`,
    ...{ tasks, refusals: 0, status: 503, requests: 0, isSilent: false },
    stop: async () => {
      http.close();
      http.closeAllConnections();
      if (http.listening) await once(http, 'close');
    },
  };
  onTestFinished(() => server.stop());
  return server;
}
