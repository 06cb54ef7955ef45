// Idle sockets of one server. Each can serve the next episode after a reset, until it has been idle for too long.
import type { OpenEnvConnection } from './openenv-connection.js';

const idleSocketMs = 30_000;

export function createSocketPool() {
  const idle = new Map<OpenEnvConnection, NodeJS.Timeout>();
  return {
    take(): OpenEnvConnection | undefined {
      const [socket] = idle.keys();
      if (!socket) return undefined;
      clearTimeout(idle.get(socket));
      idle.delete(socket);
      socket.onIdleEnd = undefined;
      return socket;
    },
    give(socket: OpenEnvConnection): void {
      if (!socket.usable) return;
      const timer = setTimeout(() => {
        idle.delete(socket);
        socket.close();
      }, idleSocketMs);
      timer.unref();
      socket.onIdleEnd = () => {
        clearTimeout(timer);
        idle.delete(socket);
      };
      idle.set(socket, timer);
    },
    async close(): Promise<void> {
      await Promise.all(
        [...idle].map(([socket, timer]) => {
          clearTimeout(timer);
          socket.onIdleEnd = undefined;
          return socket.closed();
        }),
      );
      idle.clear();
    },
  };
}
