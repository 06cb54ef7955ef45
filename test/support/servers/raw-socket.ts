// A WebSocket client that shows each frame unchanged.
import { WebSocket } from 'ws';

export interface RawSocket {
  socket: WebSocket;
  send(frame: unknown): void;
  /** The next frame, parsed. Rejects if the socket closes first, or after 10 s. */
  next(): Promise<Record<string, any>>; // eslint-disable-line @typescript-eslint/no-explicit-any
  ask(frame: unknown): ReturnType<RawSocket['next']>;
  /** Resolves to the close code. */
  closed: Promise<number>;
}

export async function openRawSocket(
  url: string,
  path = '/ws',
  headers: Record<string, string> = {},
): Promise<RawSocket> {
  const socket = new WebSocket(url.replace(/^http/, 'ws') + path, { headers, maxPayload: 2 ** 27 });
  const frames: string[] = [];
  const waiting: (() => void)[] = [];
  let code: number | undefined;
  const wake = (): void => waiting.splice(0).forEach((resume) => resume());
  socket.on('message', (data: Buffer) => {
    frames.push(data.toString());
    wake();
  });
  const closed = new Promise<number>((resolve) =>
    socket.on('close', (value) => {
      code = value;
      wake();
      resolve(value);
    }),
  );
  await new Promise<void>((resolve, reject) => {
    socket.once('open', () => resolve());
    socket.once('error', reject);
  });
  socket.on('error', () => undefined);
  const next: RawSocket['next'] = async () => {
    const deadline = Date.now() + 10_000;
    for (;;) {
      const frame = frames.shift();
      if (frame !== undefined) return JSON.parse(frame) as Record<string, unknown>;
      if (code !== undefined) throw new Error(`the socket closed with ${code}`);
      if (Date.now() > deadline) throw new Error('no frame within 10 s');
      await new Promise<void>((resolve) => {
        waiting.push(resolve);
        setTimeout(resolve, 10_000).unref();
      });
    }
  };
  const send = (frame: unknown): void =>
    socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame));
  return {
    socket,
    send,
    next,
    closed,
    ask(frame) {
      send(frame);
      return next();
    },
  };
}
