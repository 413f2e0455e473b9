import { CLOSE_REASONS, type CloseReason } from '../../contract/close-codes.ts';
import { LIMITS } from '../../contract/limits.ts';
import { phoneFrames, relayFrames } from '../../contract/phone.ts';
import { relayHostId } from '../../contract/scalars.ts';
import type { Clock, Timer } from '../clock.ts';
import { type Reply, sourceAddress } from '../http.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import { PreAuth, type PreAuthSlot } from '../pre-auth.ts';
import { pathTail, socketRoute, type UpgradeRequest } from '../socket-route.ts';
import { type App, endSocket, isClosed, type Socket } from '../uws.ts';
import type { Locate, LocateResult } from './locate.ts';
import type { Refusals } from './refusals.ts';

/**
 * `/v1/connect/<relayHostId>` on a director (wire 1.5): tells a phone that holds an invite which cell to dial. Nothing is
 * reserved here; a host that has no cell is assigned one first.
 */

const PREFIX = '/v1/connect/';

const UPGRADE_REFUSALS = {
  'query-string': { status: 400, error: 'invalid_request' },
  'bad-host-id': { status: 429, error: 'invalid_request' },
  'pre-auth-budget': { status: 429, error: 'too_many_connections' },
  stopping: { status: 503, error: 'assignments_temporarily_unavailable' },
} as const;
type UpgradeRefusal = keyof typeof UPGRADE_REFUSALS;

type Stage = 'silent' | 'looking' | 'answered';

interface Phone {
  relayHostId: string;
  slot: PreAuthSlot;
  stage: Stage;
  timer: Timer | undefined;
  gone: AbortController;
}

export interface InviteMoverParts {
  clock: Clock;
  peerTime: Clock;
  locate: Locate;
  log: Logger;
  metrics: Metrics;
  refusals: Refusals;
}

/** What a phone is told, and how its socket is closed then. */
type Answer = { frame: string | null; reason: CloseReason };

export class InviteMover {
  readonly #peerTime: Clock;
  readonly #locate: Locate;
  readonly #log: Logger;
  readonly #refusals: Refusals;
  readonly #preAuth: PreAuth;
  readonly #answers;
  readonly #refused;
  readonly #phones = new Set<Socket<Phone>>();
  #stopped = false;

  constructor({ clock, peerTime, locate, log, metrics, refusals }: InviteMoverParts) {
    this.#peerTime = peerTime;
    this.#locate = locate;
    this.#log = log;
    this.#refusals = refusals;
    this.#preAuth = new PreAuth(clock);
    this.#refused = metrics.counter('orca_relay_upgrades_refused_total', 'WebSocket upgrades refused', [
      'path',
      'reason',
    ]);
    this.#answers = metrics.counter('orca_relay_invite_closes_total', 'Phones answered by a director', ['reason']);
  }

  register(app: App): void {
    socketRoute<Phone>(app, `${PREFIX}*`, 'connect', {
      upgrade: (request) => {
        const admitted = this.#admit(request);
        return 'refuse' in admitted ? admitted : { accept: admitted };
      },
      open: (ws, phone) => {
        this.#phones.add(ws);
        phone.timer = this.#peerTime.setTimeout(
          () => this.#answer(ws, phone, { frame: null, reason: 'first frame timeout' }),
          LIMITS.firstFrameDeadlineMs,
        );
      },
      message: (ws, phone, data, isBinary) => this.#read(ws, phone, data, isBinary),
      close: (ws, phone) => {
        this.#phones.delete(ws);
        this.#peerTime.clearTimeout(phone.timer);
        phone.gone.abort();
        phone.slot.release();
      },
    });
  }

  stop(): void {
    this.#stopped = true;
    for (const ws of this.#phones) endSocket(ws, CLOSE_REASONS['relay draining'], 'relay draining');
  }

  /** In the order of wire 1.3. */
  #admit(request: UpgradeRequest): Phone | { refuse: Reply } {
    if (request.query !== '') return this.#refuse('query-string');
    const id = relayHostId.safeParse(pathTail(request.path, PREFIX));
    if (!id.success) return this.#refuse('bad-host-id');
    if (this.#stopped) return this.#refuse('stopping');
    const slot = this.#preAuth.admit(sourceAddress(request.header('x-forwarded-for'), request.remoteAddress));
    if (!slot) return this.#refuse('pre-auth-budget');
    return { relayHostId: id.data, slot, stage: 'silent', timer: undefined, gone: new AbortController() };
  }

  #refuse(reason: UpgradeRefusal): { refuse: Reply } {
    this.#refused.inc({ path: 'connect', reason });
    const { status, error } = UPGRADE_REFUSALS[reason];
    return { refuse: { status, json: { error } } };
  }

  #read(ws: Socket<Phone>, phone: Phone, data: ArrayBuffer, isBinary: boolean): void {
    if (phone.stage !== 'silent') return;
    this.#peerTime.clearTimeout(phone.timer);
    // From here on the lane bounds what it takes: a slow database must not turn away whoever dials next.
    phone.slot.release();
    const read = isBinary ? null : phoneFrames.read(Buffer.from(data).toString());
    if (read?.ok) {
      phone.stage = 'looking';
      void this.#look(ws, phone, read.frame.credential);
    } else {
      this.#answer(
        ws,
        phone,
        read ? refused('invalid relay auth') : { frame: null, reason: 'first frame must be text' },
      );
    }
  }

  async #look(ws: Socket<Phone>, phone: Phone, invite: string): Promise<void> {
    try {
      this.#answer(
        ws,
        phone,
        this.#answerTo(await this.#locate(phone.relayHostId, invite, 'invite', phone.gone.signal)),
      );
    } catch (error) {
      this.#log.error({ event: 'orca_relay_handler_failed', where: 'invite', error });
      this.#answer(ws, phone, refused('relay temporarily unavailable'));
    }
  }

  #answerTo(result: LocateResult): Answer {
    if (result.ok) {
      const { cellUrl, epoch } = result.located;
      const frame = relayFrames.write('relay-moved', { v: 1, cellUrl, assignmentEpoch: epoch });
      return { frame, reason: 'connect to assigned cell' };
    }
    this.#refusals.note('invite', result.refusal);
    return refused(result.refusal.reason === 'invalid-credential' ? 'invalid invite' : 'relay temporarily unavailable');
  }

  #answer(ws: Socket<Phone>, phone: Phone, { frame, reason }: Answer): void {
    if (phone.stage === 'answered' || isClosed(ws)) return;
    phone.stage = 'answered';
    this.#answers.inc({ reason });
    if (frame !== null) ws.send(frame);
    endSocket(ws, CLOSE_REASONS[reason], reason);
  }
}

function refused(reason: 'invalid relay auth' | 'invalid invite' | 'relay temporarily unavailable'): Answer {
  return { frame: relayFrames.write('relay-hello', { ok: false, code: CLOSE_REASONS[reason] }), reason };
}
