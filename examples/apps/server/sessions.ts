// Sessions: each has one environment and at most one socket at a time.
//
// Invariants: however a session ends (lost socket, close, time-out, shutdown), its place is released exactly once. A session without a
// socket ends after a limited time, on a clock that cannot be set (`performance.now`, in ms).
import { randomUUID } from 'node:crypto';
import { createAnsweredRequests, type AnsweredRequests } from './answered-requests.js';
import type { ServedWorld } from './app-session.js';
import type { SelectedTask } from './catalog.js';

/**
 * `socket`: ends with its socket. `resumable`: survives a lost socket, but not a closed one. `http`: survives its sockets, until a request
 * closes it by id.
 */
type SessionKind = 'socket' | 'resumable' | 'http';

/** The socket of a session, which is notified of two events. */
export interface SessionHolder {
  /** The session ended because it was unused. */
  expired(): void;
  /** Another socket has taken over the session. */
  replaced(): void;
}

export interface Session {
  readonly id: string;
  readonly kind: SessionKind;
  holder: SessionHolder | undefined;
  /** True if a request asked to close the session while it had a socket: the session then ends with that socket. */
  closing: boolean;
  ended: boolean;
  lastUsed: number;
  episode: Episode | undefined;
  answered: AnsweredRequests;
}

export interface Episode {
  episodeId: string;
  /** Idempotency key of the reset that opened the episode; undefined if the reset had no key. */
  resetKey: string | undefined;
  seed: number;
  selected: SelectedTask;
  world: ServedWorld;
  faultRate: number;
  toolErrorRate: number;
  /** Number of tool calls so far. */
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

export interface SessionCounts {
  max_sessions: number;
  sessions: number;
  /** Sessions that have a socket. */
  attached: number;
  /** Sessions that should have ended but have not; always 0 while clean-up works. */
  leaked: number;
}

export type SessionTable = ReturnType<typeof createSessionTable>;

interface SessionTableOptions {
  maxSessions: number;
  sessionTimeoutMs: number;
  /** How long a resumable session waits for its client after its socket is lost. */
  resumeTimeoutMs: number;
}

/** How often `expire` must be called, in milliseconds. */
export function sweepMs({ sessionTimeoutMs, resumeTimeoutMs }: SessionTableOptions): number {
  return Math.min(5000, sessionTimeoutMs / 4, resumeTimeoutMs / 4);
}

export function createSessionTable(options: SessionTableOptions) {
  const sessions = new Map<string, Session>();

  function end(session: Session): void {
    if (session.ended) return;
    session.ended = true;
    session.holder = undefined;
    sessions.delete(session.id);
    endEpisode(session);
  }

  function timeoutMs(kind: SessionKind): number {
    const { sessionTimeoutMs, resumeTimeoutMs } = options;
    return kind === 'resumable' ? Math.min(resumeTimeoutMs, sessionTimeoutMs) : sessionTimeoutMs;
  }

  function isOverdue({ kind, holder, lastUsed }: Session, now: number): boolean {
    return (kind === 'socket' || !holder) && now - lastUsed >= timeoutMs(kind);
  }

  /** Ends the session whose client has been away longest, and so is most likely dead: a client that connects now takes priority. */
  function makeRoom(): void {
    let longestAway: Session | undefined;
    for (const session of sessions.values()) {
      if (session.kind !== 'resumable' || session.holder) continue;
      if (!longestAway || session.lastUsed < longestAway.lastUsed) longestAway = session;
    }
    if (longestAway) end(longestAway);
  }

  return {
    get size(): number {
      return sessions.size;
    },
    counts(now: number): SessionCounts {
      const all = [...sessions.values()];
      return {
        max_sessions: options.maxSessions,
        sessions: all.length,
        attached: all.filter(({ holder }) => holder).length,
        leaked: all.filter((session) => isOverdue(session, now - sweepMs(options))).length,
      };
    },
    /** Throws `CapacityError` if all places belong to connected clients, or to `http` sessions. */
    create(kind: SessionKind, holder?: SessionHolder, id: string = randomUUID()): Session {
      if (sessions.size >= options.maxSessions) makeRoom();
      if (sessions.size >= options.maxSessions) throw new CapacityError(sessions.size, options.maxSessions);
      const session: Session = {
        id,
        kind,
        holder,
        closing: false,
        ended: false,
        lastUsed: performance.now(),
        episode: undefined,
        answered: createAnsweredRequests(),
      };
      sessions.set(session.id, session);
      return session;
    },
    get: (id: string): Session | undefined => sessions.get(id),
    /** Gives the session its only socket; `takeOver` may replace another one. The error says why this is refused. */
    attach(id: string, holder: SessionHolder, takeOver: boolean): Session {
      const session = sessions.get(id);
      if (!session) throw new Error(`Unknown session_id: ${id}`);
      const former = session.holder;
      if (former && !takeOver) throw new Error(`Session ${id} already has an attached WebSocket`);
      session.holder = holder;
      session.lastUsed = performance.now();
      former?.replaced();
      return session;
    },
    /** The socket has ended. `closed`: by a close frame of either side; otherwise it was lost. */
    detach(session: Session, holder: SessionHolder, closed: boolean): void {
      if (session.holder !== holder) return;
      session.holder = undefined;
      session.lastUsed = performance.now();
      if (session.kind === 'socket' || session.closing || (session.kind === 'resumable' && closed)) {
        end(session);
      }
    },
    end,
    /** Ends sessions that were unused for too long. A session that can survive its sockets counts as used while it has a socket. */
    expire(now: number): void {
      for (const session of sessions.values()) {
        if (!isOverdue(session, now)) continue;
        const { holder } = session;
        end(session);
        holder?.expired();
      }
    },
    endAll(): void {
      for (const session of sessions.values()) end(session);
    },
  };
}

/** Releases the world; the session can be reset again. */
export function endEpisode(session: Session): void {
  const episode = session.episode;
  session.episode = undefined;
  episode?.world.close();
}
