// Sessions: one environment each, owned by a socket or made over HTTP and attached to at most one socket.
// Invariant: every way out (socket lost, close, timeout, shutdown) gives the place back exactly once.
import { randomUUID } from 'node:crypto';
import { createAnsweredRequests, type AnsweredRequests } from './answered-requests.js';
import type { ServedWorld } from './app-session.js';
import type { SelectedTask } from './catalog.js';

export interface Session {
  readonly id: string;
  readonly owner: 'socket' | 'http';
  attached: boolean;
  /** Asked to close while attached: ends when its socket goes. */
  closing: boolean;
  ended: boolean;
  lastUsed: number;
  /** Called when the session ends for another reason than its socket's end. */
  onExpired: (() => void) | undefined;
  episode: Episode | undefined;
  answered: AnsweredRequests;
}

export interface Episode {
  episodeId: string;
  seed: number;
  selected: SelectedTask;
  world: ServedWorld;
  faultRate: number;
  toolErrorRate: number;
  /** Tool calls so far. */
  turns: number;
  /** Null until graded. */
  reward: number | null;
  done: boolean;
}

export class CapacityError extends Error {
  constructor(
    readonly active: number,
    readonly limit: number,
  ) {
    super(`Server at capacity: ${active}/${limit} sessions active. Cannot accept new connections.`);
    this.name = 'CapacityError';
  }
}

export interface SessionTable {
  readonly size: number;
  create(owner: Session['owner']): Session;
  get(id: string): Session | undefined;
  /** Binds the one socket that a session may have; throws with the reason why not. */
  attach(id: string): Session;
  /** The socket has gone: ends a session that it owned or that was to close. */
  detach(session: Session): void;
  end(session: Session): void;
  /** Ends sessions that nobody has used for the timeout. Detached or owned ones only: an attached one has a client. */
  expire(now: number): void;
  endAll(): void;
}

export function createSessionTable(options: { maxSessions: number; sessionTimeoutMs: number }): SessionTable {
  const sessions = new Map<string, Session>();

  function end(session: Session): void {
    if (session.ended) return;
    session.ended = true;
    sessions.delete(session.id);
    endEpisode(session);
  }

  return {
    get size() {
      return sessions.size;
    },
    create(owner) {
      if (sessions.size >= options.maxSessions) throw new CapacityError(sessions.size, options.maxSessions);
      const session: Session = {
        id: randomUUID(),
        owner,
        attached: owner === 'socket',
        closing: false,
        ended: false,
        lastUsed: Date.now(),
        onExpired: undefined,
        episode: undefined,
        answered: createAnsweredRequests(),
      };
      sessions.set(session.id, session);
      return session;
    },
    get: (id) => sessions.get(id),
    attach(id) {
      const session = sessions.get(id);
      if (!session) throw new Error(`Unknown session_id: ${id}`);
      if (session.attached) throw new Error(`Session ${id} already has an attached WebSocket`);
      session.attached = true;
      session.lastUsed = Date.now();
      return session;
    },
    detach(session) {
      session.attached = false;
      session.onExpired = undefined;
      session.lastUsed = Date.now();
      if (session.owner === 'socket' || session.closing) end(session);
    },
    end,
    expire(now) {
      for (const session of sessions.values()) {
        if (session.owner === 'http' && session.attached) continue;
        if (now - session.lastUsed < options.sessionTimeoutMs) continue;
        end(session);
        session.onExpired?.();
      }
    },
    endAll() {
      for (const session of sessions.values()) end(session);
    },
  };
}

/** Gives the world back; the session can be reset again. */
export function endEpisode(session: Session): void {
  const episode = session.episode;
  session.episode = undefined;
  episode?.world.close();
}
