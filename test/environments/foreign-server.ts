// An OpenEnv server that is not ours: plain `/ws`, one tool, no extension for grading. The last observation's reward is the grade.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';

/** The server reads these facts at each request, so that a test can turn it into another server. */
export interface ForeignFacts {
  /** Name of the only tool. */
  tool?: string;
  version?: string;
  /** True if the server knows the frame that asks for a grade; then the reward is that grade. */
  grades?: boolean;
  /** True for episodes that the server refuses to open. */
  refuses?: (episodeId: string) => boolean;
  /** Absent: any free port. */
  port?: number;
}

export interface ForeignServer {
  url: string;
  close(): Promise<void>;
}

/**
 * `rewardOf`: an episode's reward as JSON text, so that it can also be a value that `JSON.stringify` cannot write. `tellsTools`: whether
 * the server lists its tools when asked.
 */
export async function startForeignServer(
  rewardOf: (episodeId: string) => string,
  tellsTools: () => boolean = () => true,
  says: ForeignFacts = {},
): Promise<ForeignServer> {
  const http = createServer((request, response) => {
    response.end(
      request.url === '/metadata'
        ? JSON.stringify({ name: 'foreign', version: says.version ?? '1' })
        : '{"status":"healthy"}',
    );
  });
  const sockets = new WebSocketServer({ server: http });
  sockets.on('connection', (socket) => {
    let reward = 'null';
    socket.on('message', (message: Buffer) => {
      const { type, data = {} } = JSON.parse(message.toString()) as {
        type: string;
        data?: Record<string, unknown>;
      };
      if (type === 'close') return socket.close();
      if (type === 'reset') {
        const episode = String(data.episode_id);
        if (says.refuses?.(episode))
          return socket.send('{"type":"error","data":{"code":"EXECUTION_ERROR","message":"no such task"}}');
        reward = rewardOf(episode);
      }
      if (type === 'grade') {
        const refused = '{"type":"error","data":{"code":"UNKNOWN_TYPE","message":"no such frame"}}';
        return socket.send((says.grades ?? true) ? `{"type":"grade","data":{"value":${reward}}}` : refused);
      }
      const observation =
        data.type === 'list_tools' && tellsTools()
          ? {
              tools: [
                {
                  name: says.tool ?? 'look',
                  description: 'Looks.',
                  inputSchema: { type: 'object', properties: {} },
                },
              ],
            }
          : { result: 'something' };
      socket.send(
        `{"type":"observation","data":{"observation":${JSON.stringify(observation)},"reward":${reward},"done":false}}`,
      );
    });
  });
  http.listen(says.port ?? 0, '127.0.0.1');
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
