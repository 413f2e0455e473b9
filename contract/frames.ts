import type { z } from 'zod';

/**
 * Text frames of the relay: a JSON object whose `type` names the message and whose other members are its fields. Both
 * directions are strict: an unknown member makes a frame invalid when read, and is a thrown error when written.
 */
export type FrameSchemas = Record<string, z.ZodType<object>>;

export type Frame<S extends FrameSchemas> = { [T in keyof S & string]: { type: T } & z.output<S[T]> }[keyof S & string];

export type FrameError = 'invalid_json' | 'unknown_type' | 'invalid_fields';

export type ReadFrame<S extends FrameSchemas> =
  | { ok: true; frame: Frame<S> }
  | {
      ok: false;
      error: FrameError /** Present when it could be read, so that an answer can name it. */;
      reqId?: string;
    };

export interface FrameCodec<S extends FrameSchemas> {
  read(text: string): ReadFrame<S>;
  /** @throws when the fields are not what the contract says: a mistake of the caller's. */
  write<T extends keyof S & string>(type: T, fields: z.input<S[T]>): string;
}

export function frameCodec<const S extends FrameSchemas>(schemas: S): FrameCodec<S> {
  return {
    read(text) {
      const raw = parseObject(text);
      if (!raw) return { ok: false, error: 'invalid_json' };
      const { type, ...fields } = raw;
      const reqId = isReqId(raw.reqId) ? { reqId: raw.reqId } : {};
      const schema = typeof type === 'string' && Object.hasOwn(schemas, type) ? schemas[type] : undefined;
      if (!schema) return { ok: false, error: 'unknown_type', ...reqId };
      const parsed = schema.safeParse(fields);
      if (!parsed.success) return { ok: false, error: 'invalid_fields', ...reqId };
      return { ok: true, frame: { type, ...parsed.data } as Frame<S> };
    },
    write(type, fields) {
      return JSON.stringify({ type, ...schemas[type]?.parse(fields) });
    },
  };
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** An id that an answer may carry: one that is not opaque-id sized would make the answer invalid itself. */
function isReqId(value: unknown): value is string {
  return typeof value === 'string' && value.length >= 1 && value.length <= 128;
}
