// An OpenEnv server that is not ours: plain `/ws`, one tool, no grading extension. The reward of its last observation is the grade.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';

export interface ForeignServer {
  url: string;
  close(): Promise<void>;
}

/**
 * `rewardOf`: JSON text of the reward of an episode, so that it may also be what `JSON.stringify` cannot write. `tellsTools`:
 * whether it answers a question for its tools with any.
 */
export async function startForeignServer(
  rewardOf: (episodeId: string) => string,
  tellsTools: () => boolean = () => true,
): Promise<ForeignServer> {
  const http = createServer((_, response) => response.end('{"status":"healthy"}'));
  const sockets = new WebSocketServer({ server: http });
  sockets.on('connection', (socket) => {
    let reward = 'null';
    socket.on('message', (message: Buffer) => {
      const { type, data = {} } = JSON.parse(message.toString()) as {
        type: string;
        data?: Record<string, unknown>;
      };
      if (type === 'close') return socket.close();
      if (type === 'reset') reward = rewardOf(String(data.episode_id));
      const observation =
        data.type === 'list_tools' && tellsTools()
          ? {
              tools: [
                { name: 'look', description: 'Looks.', inputSchema: { type: 'object', properties: {} } },
              ],
            }
          : { result: 'something' };
      socket.send(
        `{"type":"observation","data":{"observation":${JSON.stringify(observation)},"reward":${reward},"done":false}}`,
      );
    });
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    async close() {
      for (const client of sockets.clients) client.terminate();
      http.close();
      await once(http, 'close');
    },
  };
}
