import { STATUS_CODES } from 'node:http';
import type { z } from 'zod';
import { LIMITS } from '../contract/limits.ts';
import { type App, errorSinkOf, type HttpRequest, type HttpResponse } from './uws.ts';

export interface Request {
  method: string;
  /** Without query. */
  path: string;
  /** Raw, without the question mark. */
  query: string;
  /** By lower-case name. */
  header(name: string): string | undefined;
  /** Whole; only for methods that carry one. */
  body?: Buffer;
  /** Address of the TCP peer; {@link sourceAddress} makes the source for limits of it. */
  remoteAddress: string;
  /** Aborted when the peer hangs up. */
  signal: AbortSignal;
}

export interface Reply {
  status: number;
  json?: unknown;
  text?: string;
  headers?: Record<string, string>;
}

export type Handler = (request: Request) => Reply | Promise<Reply>;
export type Method = 'get' | 'post' | 'put' | 'delete' | 'any';

export interface RouteOptions {
  /** Default 4096; a larger body is answered 413 `request_too_large`. */
  maxBodyBytes?: number;
}

const REGISTER = { get: 'get', post: 'post', put: 'put', delete: 'del', any: 'any' } as const;

/** Serves `path` (uWebSockets.js pattern). An exception in the handler is reported and answered 500 `internal_error`. */
export function route(app: App, method: Method, path: string, handler: Handler, options: RouteOptions = {}): void {
  const maxBodyBytes = options.maxBodyBytes ?? LIMITS.maxHttpBodyBytes;
  const report = errorSinkOf(app);
  app[REGISTER[method]](path, (res, req) => {
    const exchange = beginExchange(res, req);
    const { request } = exchange;
    const run = () => {
      answer(handler, request).then(exchange.reply, (error) => {
        report(error, `${request.method} ${path}`);
        exchange.reply({ status: 500, json: { error: 'internal_error' } });
      });
    };
    if (request.method === 'GET' || request.method === 'HEAD') {
      run();
      return;
    }
    readBody(res, maxBodyBytes, (body) => {
      if (body === null) exchange.reply({ status: 413, json: { error: 'request_too_large' } });
      else {
        request.body = body;
        run();
      }
    });
  });
}

/** Everything no route takes: 404. Register it last. */
export function notFound(app: App): void {
  route(app, 'any', '/*', ({ header, query }) => {
    // an upgrade's query string is looked at before its path (wire 1.3)
    const queried = query !== '' && header('upgrade') !== undefined;
    return queried
      ? { status: 400, json: { error: 'invalid_request' } }
      : { status: 404, json: { error: 'not_found' } };
  });
}

// An async function, so that a handler that throws before its first await is caught the same way.
async function answer(handler: Handler, request: Request): Promise<Reply> {
  return handler(request);
}

interface Exchange {
  request: Request;
  /** Harmless after the peer has gone or was answered. */
  reply(reply: Reply): void;
}

/** Copies all that is needed later: the request object is dead after the handler returns. */
function beginExchange(res: HttpResponse, req: HttpRequest): Exchange {
  const headers = copyHeaders(req);
  let over = false;
  let hangUp: AbortController | undefined;
  const request: Request = {
    method: req.getMethod().toUpperCase(),
    path: req.getUrl(),
    query: req.getQuery() ?? '',
    header: (name) => headers.get(name),
    remoteAddress: socketAddress(res),
    get signal() {
      hangUp ??= new AbortController();
      return hangUp.signal;
    },
  };
  res.onAborted(() => {
    over = true;
    hangUp?.abort();
  });
  return {
    request,
    reply(reply) {
      if (over) return;
      over = true;
      res.cork(() => sendReply(res, reply));
    },
  };
}

/** Hands over the whole body, or null once, as soon as it is longer than allowed. */
function readBody(res: HttpResponse, maxBytes: number, done: (body: Buffer | null) => void): void {
  const chunks: Buffer[] = [];
  let length = 0;
  let over = false;
  res.onData((chunk, last) => {
    if (over) return;
    length += chunk.byteLength;
    if (length > maxBytes) {
      over = true;
      done(null);
      return;
    }
    // The chunk's memory is taken back when this returns.
    chunks.push(Buffer.from(new Uint8Array(chunk)));
    if (last) {
      over = true;
      done(Buffer.concat(chunks, length));
    }
  });
}

/** Must run corked, once, on a response that is still open. */
export function sendReply(res: HttpResponse, reply: Reply): void {
  res.writeStatus(`${reply.status} ${STATUS_CODES[reply.status] ?? ''}`);
  for (const [name, value] of Object.entries(reply.headers ?? {})) res.writeHeader(name, value);
  if (reply.json !== undefined) {
    res.writeHeader('content-type', 'application/json');
    res.end(JSON.stringify(reply.json));
  } else {
    if (reply.headers?.['content-type'] === undefined) res.writeHeader('content-type', 'text/plain; charset=utf-8');
    res.end(reply.text ?? '');
  }
}

/** A header that comes twice is joined as HTTP says. */
export function copyHeaders(req: HttpRequest): Map<string, string> {
  const headers = new Map<string, string>();
  req.forEach((name, value) => {
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  });
  return headers;
}

const IPV4_MAPPED = /^(?:0{4}:){5}ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})$/;

/** The TCP peer's address; IPv4 in its usual form also when it came through an IPv6 socket. */
export function socketAddress(res: HttpResponse): string {
  const text = Buffer.from(res.getRemoteAddressAsText()).toString();
  const mapped = IPV4_MAPPED.exec(text);
  if (mapped === null) return text;
  return mapped
    .slice(1)
    .map((byte) => Number.parseInt(byte, 16))
    .join('.');
}

/**
 * Who a connection counts against: the last but one entry of X-Forwarded-For, which our own load balancer wrote (it appends
 * client, then proxy); whatever stands before it the client may have invented. The socket's address if there are fewer.
 */
export function sourceAddress(forwardedFor: string | undefined, socketAddress: string): string {
  const entries = (forwardedFor ?? '').split(',').map((entry) => entry.trim());
  return (entries.length >= 2 && entries.at(-2)) || socketAddress;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** The body as the schema has it; null if it is no UTF-8, no JSON, or does not fit. */
export function readJson<Schema extends z.ZodType>(schema: Schema, body: Buffer | undefined): z.output<Schema> | null {
  if (body === undefined) return null;
  let value: unknown;
  try {
    value = JSON.parse(utf8.decode(body));
  } catch {
    return null;
  }
  const parsed = schema.safeParse(value);
  return parsed.success ? parsed.data : null;
}
