// Sessions: one environment each, held by at most one socket at a time.
//
// Invariant: every way out (socket gone, close, timeout, shutdown) releases the place exactly once, and a session without a holder is on
// its way out: its time is bounded, on a clock that cannot be set (`performance.now`, in ms).
import { randomUUID } from 'node:crypto';
import { createAnsweredRequests, type AnsweredRequests } from './answered-requests.js';
import type { ServedWorld } from './app-session.js';
import type { SelectedTask } from './catalog.js';

/**
 * `socket`: ends with its socket. `resumable`: outlives a socket that was lost, not one that was closed. `http`: outlives its
 * sockets, until it is closed by name.
 */
export type SessionKind = 'socket' | 'resumable' | 'http';

/** The socket of a session, and its notifications. */
export interface SessionHolder {
  /** The session ended because it was unused. */
  expired(): void;
  /** Another socket has the session now. */
  replaced(): void;
}

export interface Session {
  readonly id: string;
  readonly kind: SessionKind;
  holder: SessionHolder | undefined;
  /** Asked to close while a socket holds it: ends when that socket goes. */
  closing: boolean;
  ended: boolean;
  lastUsed: number;
  episode: Episode | undefined;
  answered: AnsweredRequests;
}

export interface Episode {
  episodeId: string;
  /** Idempotency key of the reset that opened it, if any. */
  resetKey: string | undefined;
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

export interface SessionCounts {
  max_sessions: number;
  sessions: number;
  /** With a socket. */
  attached: number;
  /** Past their time and not yet ended: always 0 while clean-up works. */
  leaked: number;
}

export type SessionTable = ReturnType<typeof createSessionTable>;

export interface SessionTableOptions {
  maxSessions: number;
  sessionTimeoutMs: number;
  /** How long a resumable session waits for its client after its socket was lost. */
  resumeTimeoutMs: number;
}

/** How often `expire` is due. */
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

  /** A present client goes before one that may come back; the one that has been away longest is the likeliest dead. */
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
    /** Throws `CapacityError` when all places are taken by clients that live. */
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
    /** Binds the one socket that a session may have; with `takeOver`, in place of another one. Throws with the reason if it may not. */
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
    /** The socket has gone. `closed`: one of both sides said so; else it was lost. */
    detach(session: Session, holder: SessionHolder, closed: boolean): void {
      if (session.holder !== holder) return;
      session.holder = undefined;
      session.lastUsed = performance.now();
      if (session.kind === 'socket' || session.closing || (session.kind === 'resumable' && closed)) {
        end(session);
      }
    },
    end,
    /** Ends sessions that were unused for their time. A session that outlives sockets is in use while a socket holds it. */
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
