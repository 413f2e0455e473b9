import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LIMITS } from '../../contract/index.ts';
import { type Accepted, Connection } from '../../server/cell/connection.ts';
import { type ControlClose, ControlSession } from '../../server/cell/control-session.ts';
import type { EndCause } from '../../server/cell/control-states.ts';
import type { Clock } from '../../server/clock.ts';
import { PeerTime } from '../../server/peer-time.ts';
import { HandClock } from '../support/hand-clock.ts';
import { MemorySocket } from './support/memory-socket.ts';

class Host {
  readonly clock: HandClock;
  readonly peerTime: Clock;
  readonly ends: EndCause[] = [];
  readonly closes: ControlClose[] = [];
  readonly sockets: MemorySocket[] = [];

  constructor(clock = new HandClock(), peerTime: Clock = clock) {
    this.clock = clock;
    this.peerTime = peerTime;
  }

  identity(lifeMs = 300_000) {
    return {
      userId: 'user-1',
      profileId: 'profile-1',
      organizationId: null,
      relayHostId: 'abcdefghijklmnop',
      expiresAt: this.clock.wallNow() + lifeMs,
    };
  }

  proving(lifeMs?: number): { session: ControlSession; socket: MemorySocket } {
    const socket = new MemorySocket();
    this.sockets.push(socket);
    const session = new ControlSession(
      { clock: this.clock, peerTime: this.peerTime },
      {
        message: () => {},
        tick: () => {},
        closed: (_session, close) => this.closes.push(close),
        stepped: () => {},
        ended: (_session, { cause }) => this.ends.push(cause),
      },
      { identity: this.identity(lifeMs), socket: socket.peer, capabilities: new Set(), watermark: 1 },
    );
    return { session, socket };
  }

  seated(lifeMs = 30 * 3_600_000): { session: ControlSession; socket: MemorySocket } {
    const proved = this.proving(lifeMs);
    proved.session.activate({ epoch: 7, generation: 1, appVersion: '1.4.0' });
    return proved;
  }

  phone(session: ControlSession, over: Partial<Accepted> = {}): { connection: Connection; phone: MemorySocket } {
    const phone = new MemorySocket();
    const accepted = {
      kind: 'resume',
      relayDeviceId: 'device-1',
      leaseExpiresAt: 1,
      credentialVersion: 3,
      acceptedAs: 'current',
      resumeExpiresAt: 2,
      graceExpiresAt: null,
      ...over,
    } as Accepted;
    const connId = `conn-${session.connections.size}`;
    const opened = { connId, accepted, session, phone: phone.peer, openedAt: this.clock.now() };
    const ended = (connection: Connection) => session.letGo(connection.connId);
    const connection = new Connection({ clock: this.clock, peerTime: this.peerTime }, { ended }, opened);
    session.hold(connection);
    connection.awaitHost();
    return { connection, phone };
  }

  /** Lets time pass for a host that answers its pings. */
  pass(session: ControlSession, ms: number): void {
    for (let left = ms; left > 0; left -= LIMITS.controlPingIntervalMs) {
      this.clock.advance(Math.min(left, LIMITS.controlPingIntervalMs));
      session.pong(0);
    }
  }
}

describe('a control session', () => {
  it('is pinged every 15 s with the time, and takes the echo as a round trip (wire 2.3.7)', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    host.clock.advance(15_000);
    const [ping] = socket.frames('ping');
    host.clock.advance(40);
    expect(session.pong(Number(ping?.t))).toEqual({ roundTripMs: 40 });
    expect(session.pong(Number(ping?.t))).toBeNull();
    host.clock.advance(15_000);
    expect(socket.frames('ping')).toHaveLength(2);
  });

  it('does not take a stop of its own process for silence, nor for an orphan that stays away', () => {
    const clock = new HandClock();
    const host = new Host(clock, new PeerTime(clock, (run) => run()));
    const { session, socket } = host.seated();
    clock.advance(70_000);
    clock.sleep(600_000);
    expect(socket.closed).toBeNull();
    expect(socket.frames('ping')).toHaveLength(5);
    clock.advance(30_000);
    expect(socket.closed).toEqual({ code: 4408, reason: 'control silence timeout' });
    clock.sleep(600_000);
    expect(session.state).toBe('orphaned');
    clock.advance(30_000);
    expect(host.ends).toEqual(['orphan-expired']);
  });

  it('gives a silent socket up after 75 s and is an orphan then, for 30 s', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    const { phone } = host.phone(session);
    host.clock.advance(75_000);
    expect(socket.closed).toBeNull();
    host.clock.advance(15_000);
    expect(socket.closed).toEqual({ code: 4408, reason: 'control silence timeout' });
    expect(session.state).toBe('orphaned');
    host.clock.advance(29_999);
    expect(session.state).toBe('orphaned');
    host.clock.advance(1);
    expect(host.ends).toEqual(['orphan-expired']);
    expect(phone.closed?.code).toBe(4404);
    expect(host.clock.armed).toBe(0);
  });

  it('must be rebound within 6 h ± 30 min, or ends with drain 0 and 4503', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    host.pass(session, 5.5 * 3_600_000 - 15_000);
    expect(session.state).toBe('active');
    host.pass(session, 3_600_000 + 30_000);
    expect(socket.frames('drain')).toEqual([{ type: 'drain', graceMs: 0, recovery: 'resolve-director' }]);
    expect(socket.closed).toEqual({ code: 4503, reason: 'control lease expired' });
    expect(host.ends).toEqual(['lease-expired']);
  });

  it('gets a new lease with every rebind, and keeps generation, secret and phones', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    const { connection, phone } = host.phone(session);
    const secret = session.resumeSecret;
    host.pass(session, 5 * 3_600_000);
    const next = host.proving(30 * 3_600_000);
    session.rebind(next.session, '1.5.0');
    expect(socket.closed).toEqual({ code: 4408, reason: 'control rebound' });
    expect(next.session.state).toBe('closed');
    expect(session).toMatchObject({ state: 'active', generation: 1, resumeSecret: secret, appVersion: '1.5.0' });
    expect(phone.closed?.code).toBe(4404); // its own 10 s, long over
    expect(connection.state).toBe('teardown');
    host.pass(session, 5 * 3_600_000);
    expect(session.state).toBe('active');
  });

  it('is not unseated by a late close of the socket it was rebound from', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    socket.leave();
    expect(session.state).toBe('orphaned');
    const next = host.proving();
    session.rebind(next.session, '1.4.0');
    socket.leave(1000, 'signed-out');
    host.clock.advance(31_000);
    expect(session.state).toBe('active');
    expect(host.ends).toEqual([]);
  });

  it('takes no phones once its token has expired, comes back by a refresh, and ends 60 s after the expiry', () => {
    const host = new Host();
    const { session, socket } = host.seated(60_000);
    host.pass(session, 60_000);
    expect(session.state).toBe('drain-only');
    expect(session.takesPhones).toBe(false);
    expect(session.serving).toBe(true);
    session.refresh(host.identity(20_000));
    expect(session.state).toBe('active');
    host.pass(session, 75_000);
    expect(socket.closed).toBeNull();
    host.pass(session, 15_000);
    expect(socket.closed).toEqual({ code: 4401, reason: 'relay authorization expired' });
    expect(host.ends).toEqual(['auth-expired']);
  });

  it('goes at once when its host signs out, and its waiting phones read so', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    const { phone } = host.phone(session);
    socket.leave(1000, 'signed-out');
    expect(host.ends).toEqual(['signed-out']);
    expect(phone.closed).toEqual({ code: 4404, reason: 'signed-out' });
    expect(JSON.parse(phone.sent[0] ?? '')).toEqual({ type: 'relay-hello', ok: false, code: 4404 });
  });

  it('treats any other last word as a lost socket', () => {
    for (const [code, reason] of [
      [1000, 'bye'],
      [1001, 'signed-out'],
      [4000, 'signed-out'],
    ] as const) {
      const host = new Host();
      const { session, socket } = host.seated();
      socket.leave(code, reason);
      expect(session.state).toBe('orphaned');
    }
  });
});

describe('a drained control', () => {
  it('is told once, takes no phones, and goes when its grace is over', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    const { phone } = host.phone(session);
    session.drain(5_000, 'retired');
    session.drain(8_000, 'drained');
    expect(socket.frames('drain')).toEqual([{ type: 'drain', graceMs: 5_000, recovery: 'resolve-director' }]);
    expect(session.state).toBe('drain-only');
    session.refresh(host.identity());
    expect(session.state).toBe('drain-only');
    host.clock.advance(5_000);
    expect(host.ends).toEqual(['retired']);
    expect(socket.closed?.code).toBe(4503);
    expect(phone.closed?.code).toBe(4503);
    expect(host.clock.armed).toBe(0);
  });

  it('goes at once when a grace of 0 follows a longer one', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    session.drain(60_000, 'retired');
    session.drain(0, 'drained');
    expect(socket.frames('drain').map(({ graceMs }) => graceMs)).toEqual([60_000, 0]);
    expect(host.ends).toEqual(['drained']);
  });

  it('cannot be rebound, and its lost socket leaves it drain-only for the grace', () => {
    const host = new Host();
    const { session, socket } = host.seated();
    session.drain(600_000, 'drained');
    expect(session.rebindable(session.resumeSecret)).toBe(false);
    socket.leave();
    expect(session.state).toBe('drain-only');
    host.clock.advance(30_000);
    expect(host.ends).toEqual(['orphan-expired']);
  });
});

describe('a phone connection as a basis (wire 2.5)', () => {
  const pair = { close: () => {} };

  it('vouches for an install until its reservation is over, and for its own device only', () => {
    const host = new Host();
    const { session } = host.seated();
    const invite = { kind: 'invite', tokenHash: 'hash', reservedUntil: host.clock.now() + 15_000 } as const;
    const { connection } = host.phone(session, invite);
    expect(connection.inviteBasis('device-1')).toBeNull();
    connection.attached();
    connection.spliced(pair);
    expect(connection.inviteBasis('device-1')).toEqual({ conn_id: 'conn-0', token_hash: 'hash' });
    expect(connection.inviteBasis('device-2')).toBeNull();
    expect(connection.resumeBasis()).toBeNull();
    host.clock.advance(15_000);
    expect(connection.inviteBasis('device-1')).toBeNull();
  });

  it('confirms a resume for 30 s from its attach, and not after its end', () => {
    const host = new Host();
    const { session } = host.seated();
    const { connection } = host.phone(session);
    host.clock.advance(9_000);
    connection.attached();
    connection.spliced(pair);
    host.clock.advance(29_999);
    expect(connection.resumeBasis()).toEqual({ relay_device_id: 'device-1', credential_version: 3 });
    host.clock.advance(1);
    expect(connection.resumeBasis()).toBeNull();
    const other = host.phone(session).connection;
    other.attached();
    other.spliced(pair);
    other.spliceEnded();
    expect(other.resumeBasis()).toBeNull();
  });

  it('ends 4404 when its host brings no data socket within 10 s', () => {
    const host = new Host();
    const { session } = host.seated();
    const { phone } = host.phone(session);
    host.clock.advance(10_000);
    expect(phone.closed).toEqual({ code: 4404, reason: 'host attach timeout' });
    expect(session.connections.size).toBe(0);
  });
});

describe('whatever happens to a control, in any order', () => {
  type Step = (host: Host, session: ControlSession) => void;
  const steps: Record<string, Step> = {
    lose: (_host, session) => session.socket?.close('peer connection dropped'),
    silence: (host) => host.clock.advance(90_000),
    tick: (host, session) => host.pass(session, 15_000),
    phone: (host, session) => void (session.takesPhones && !session.full && host.phone(session)),
    refresh: (host, session) => session.refresh(host.identity(120_000)),
    rebind: (host, session) => {
      if (session.rebindable(session.resumeSecret)) session.rebind(host.proving(120_000).session, '2.0.0');
    },
    drain: (_host, session) => session.drain(20_000, 'drained'),
    badJson: (_host, session) => session.closeSocket('invalid control JSON'),
    moved: (_host, session) => session.end('moved'),
  };

  it('ends at most once, and an ended one holds no socket, no phone and no timer', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...Object.keys(steps)), { maxLength: 40 }), (names) => {
        const host = new Host();
        const { session } = host.seated(120_000);
        for (const name of names) steps[name]?.(host, session);
        expect(host.ends.length).toBeLessThanOrEqual(1);
        expect(session.state === 'closed').toBe(host.ends.length === 1);
        if (session.state !== 'closed') session.end('drained');
        expect(session.connections.size).toBe(0);
        expect(session.socket).toBeNull();
        expect(host.clock.armed).toBe(0);
        const open = host.sockets.filter(({ closed }) => closed === null);
        expect(open).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });
});
