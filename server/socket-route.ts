import { LIMITS } from '../contract/limits.ts';
import { copyHeaders, type Reply, sendReply, socketAddress } from './http.ts';
import {
  type App,
  continueEnding,
  endSocket,
  errorSinkOf,
  type HttpRequest,
  type HttpResponse,
  isEnding,
  markClosed,
  type Socket,
  type SocketData,
  socketSettings,
  type UpgradeContext,
} from './uws.ts';

/** The three WebSocket paths differ in what one message may hold, and in what may wait for a slow peer. */
export type SocketKind = 'control' | 'connect' | 'data';

const MAX_PAYLOAD_BYTES: Record<SocketKind, number> = {
  control: LIMITS.maxControlFrameBytes,
  connect: LIMITS.maxFrameBytes,
  data: LIMITS.maxFrameBytes,
};

/** Above every bound of our own: a socket over this drops even its close frame. */
const MAX_BACKPRESSURE_BYTES: Record<SocketKind, number> = {
  control: 4 * LIMITS.maxControlFrameBytes,
  connect: 4 * LIMITS.maxFrameBytes,
  data: 4 * LIMITS.maxFrameBytes,
};

export interface UpgradeRequest {
  /** Path without query. */
  path: string;
  query: string;
  /** By lower-case name. */
  header(name: string): string | undefined;
  /** Address of the TCP peer; `sourceAddress` (http.ts) makes the source for limits of it. */
  remoteAddress: string;
}

export type UpgradeDecision<State> = { accept: State } | { refuse: Reply };

export interface SocketHandlers<State> {
  /** Decides by itself, or asks; a peer that hangs up meanwhile is handled here. */
  upgrade(request: UpgradeRequest): UpgradeDecision<State> | Promise<UpgradeDecision<State>>;
  /** The peer hung up between an asynchronous acceptance and the 101: give back what `state` holds. */
  abandoned?(state: State): void;
  open?(ws: Socket<State>, state: State): void;
  /** `data` is gone when this returns. Not called any more after `endSocket`. */
  message?(ws: Socket<State>, state: State, data: ArrayBuffer, isBinary: boolean): void;
  drain?(ws: Socket<State>, state: State): void;
  /** Exactly once for every socket that opened. `ws` must not be used; the code is 1006 without a close frame. */
  close?(ws: Socket<State>, state: State, code: number, reason: string): void;
}

const stateOf = <State>(ws: Socket<State>): State => (ws as unknown as SocketData<State>).state;

/**
 * Serves WebSockets on `pattern` (uWebSockets.js syntax). An exception in a handler is reported, and closes the socket with
 * 4429 `relay temporarily unavailable`.
 */
export function socketRoute<State>(app: App, pattern: string, kind: SocketKind, handlers: SocketHandlers<State>): void {
  const report = errorSinkOf(app);
  const guarded = (ws: Socket<State>, run: () => void) => {
    try {
      run();
    } catch (error) {
      report(error, `WebSocket ${pattern}`);
      endSocket(ws, 4429, 'relay temporarily unavailable');
    }
  };
  const onMessage = handlers.message?.bind(handlers);
  app.ws<SocketData<State>>(pattern, {
    ...socketSettings(MAX_PAYLOAD_BYTES[kind], MAX_BACKPRESSURE_BYTES[kind]),
    upgrade: (res, req, context) => upgrade(app, pattern, handlers, res, req, context),
    open: (ws) => {
      openSockets.add(ws as Socket);
      guarded(ws, () => handlers.open?.(ws, stateOf(ws)));
    },
    message: (ws, data, isBinary) => {
      if (onMessage === undefined || isEnding(ws)) return;
      try {
        onMessage(ws, stateOf(ws), data, isBinary);
      } catch (error) {
        report(error, `WebSocket ${pattern}`);
        endSocket(ws, 4429, 'relay temporarily unavailable');
      }
    },
    drain: (ws) => {
      if (!continueEnding(ws)) guarded(ws, () => handlers.drain?.(ws, stateOf(ws)));
    },
    close: (ws, code, reason) => {
      markClosed(ws);
      openSockets.delete(ws as Socket);
      guarded(ws, () => handlers.close?.(ws, stateOf(ws), code, Buffer.from(reason).toString()));
    },
  });
}

const openSockets = new Set<Socket>();

/** The socket that lends its cork to late upgrades: the oldest there is. */
export function corkLender(): Socket | undefined {
  return openSockets.values().next().value;
}

/**
 * Runs a late upgrade. `res.cork` tells an upgraded socket from a response by its address alone: one that the upgrade left
 * where it was is looked at as a response still, and now and then closed (1006) for it. While another socket holds the cork,
 * the same call runs the upgrade and looks at nothing afterwards. Without any cork the library complains on stderr.
 * A process with late upgrades keeps a socket for it (`cork-lender.ts`).
 */
function borrowCork(res: HttpResponse, upgradeNow: () => void): void {
  const lender = corkLender();
  if (lender === undefined) res.cork(upgradeNow);
  else lender.cork(() => res.cork(upgradeNow));
}

function upgrade<State>(
  app: App,
  pattern: string,
  handlers: SocketHandlers<State>,
  res: HttpResponse,
  req: HttpRequest,
  context: UpgradeContext,
): void {
  const key = req.getHeader('sec-websocket-key');
  const extensions = req.getHeader('sec-websocket-extensions');
  const headers = copyHeaders(req);
  const request: UpgradeRequest = {
    path: req.getUrl(),
    query: req.getQuery() ?? '',
    header: (name) => headers.get(name),
    remoteAddress: socketAddress(res),
  };
  let gone = false;
  res.onAborted(() => {
    gone = true;
  });
  const settle = (decision: UpgradeDecision<State>) => {
    if (gone) {
      if ('accept' in decision) handlers.abandoned?.(decision.accept);
      return;
    }
    if ('refuse' in decision) res.cork(() => sendReply(res, decision.refuse));
    else borrowCork(res, () => res.upgrade({ state: decision.accept }, key, '', extensions, context));
  };
  const fail = (error: unknown) => {
    errorSinkOf(app)(error, `upgrade ${pattern}`);
    settle({ refuse: { status: 503, json: { error: 'relay_temporarily_unavailable' } } });
  };
  try {
    const decision = handlers.upgrade(request);
    if (decision instanceof Promise) decision.then(settle).catch(fail);
    else settle(decision);
  } catch (error) {
    fail(error);
  }
}

/**
 * What follows `prefix` in a path, percent-decoded; null if the escape is malformed or the rest is not 1–128 characters.
 */
export function pathTail(path: string, prefix: string): string | null {
  const raw = path.slice(prefix.length);
  // A decoded character takes at least one byte, an escaped one up to twelve.
  if (raw.length === 0 || raw.length > 12 * 128) return null;
  try {
    const text = decodeURIComponent(raw);
    return text.length <= 128 ? text : null;
  } catch {
    return null;
  }
}
