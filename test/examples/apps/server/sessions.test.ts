// The places of a server: which client gets one when all are in use, and what the counts show if clean-up fails.
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  createSessionTable,
  type Session,
  type SessionHolder,
} from '../../../../examples/apps/server/sessions.js';

const holder = (): SessionHolder => ({ expired: () => undefined, replaced: () => undefined });
const minuteMs = 60_000;
const table = () =>
  createSessionTable({ maxSessions: 2, sessionTimeoutMs: 30 * minuteMs, resumeTimeoutMs: minuteMs });

/** A resumable session that lost its socket `agoMs` milliseconds ago. */
function leftBehind(sessions: ReturnType<typeof table>, agoMs: number): Session {
  const former = holder();
  const session = sessions.create('resumable', former);
  sessions.detach(session, former, false);
  session.lastUsed -= agoMs;
  return session;
}

describe('a full server', () => {
  it('gives a new client the place of the client that has been away longest', () => {
    const sessions = table();
    const away = leftBehind(sessions, 100);
    const longer = leftBehind(sessions, 200);
    sessions.create('resumable', holder());
    expect([away.ended, longer.ended]).toEqual([false, true]);
    sessions.create('http');
    expect(away.ended).toBe(true);
    expect(() => sessions.create('socket', holder())).toThrow('Server at capacity: 2/2 sessions active');
  });

  it('takes no place from a client with a socket, nor from a session made over HTTP', () => {
    const sessions = table();
    const held = sessions.create('resumable', holder());
    const overHttp = sessions.create('http');
    expect(() => sessions.create('resumable', holder())).toThrow('Server at capacity');
    expect([held.ended, overHttp.ended]).toEqual([false, false]);
  });
});

describe('a change of the clock', () => {
  afterEach(() => vi.useRealTimers());

  it.each([-60, 60])('by %i minutes ends no session early, and keeps no session too long', (minutes) => {
    const sessions = table();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + minutes * minuteMs });
    const session = leftBehind(sessions, 0);
    vi.useRealTimers();
    sessions.expire(performance.now() + 0.9 * minuteMs);
    expect(session.ended).toBe(false);
    sessions.expire(performance.now() + minuteMs);
    expect(session.ended).toBe(true);
  });
});

describe('the counts', () => {
  it('show the sessions that were not cleaned up in time', () => {
    const sessions = table();
    leftBehind(sessions, 0);
    sessions.create('http');
    const now = performance.now();
    expect(sessions.counts(now)).toEqual({ max_sessions: 2, sessions: 2, attached: 0, leaked: 0 });
    expect(sessions.counts(now + minuteMs).leaked).toBe(0);
    expect(sessions.counts(now + 1.5 * minuteMs).leaked).toBe(1);
    expect(sessions.counts(now + 31 * minuteMs).leaked).toBe(2);
    sessions.expire(now + 31 * minuteMs);
    expect(sessions.counts(now + 31 * minuteMs)).toMatchObject({ sessions: 0, leaked: 0 });
  });

  it('count a session with a socket as in use, however long its policy thinks', () => {
    const sessions = table();
    sessions.create('resumable', holder());
    const now = performance.now() + 60 * minuteMs;
    sessions.expire(now);
    expect(sessions.counts(now)).toEqual({ max_sessions: 2, sessions: 1, attached: 1, leaked: 0 });
  });
});
