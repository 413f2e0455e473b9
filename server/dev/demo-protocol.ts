import { z } from 'zod';

/**
 * What the demo's phone and desktop say to each other through the splice: JSON in text messages, file contents in binary
 * ones. Real apps encrypt end to end before they say anything; the relay carries either without looking.
 */
export const demoRequest = z.discriminatedUnion('ask', [
  z.strictObject({ ask: z.literal('provision'), reqId: z.string(), newResumeTokenHash: z.string() }),
  z.strictObject({ ask: z.literal('confirm'), reqId: z.string() }),
  z.strictObject({ ask: z.literal('run'), command: z.string() }),
  z.strictObject({ ask: z.literal('ping'), payload: z.string() }),
  z.strictObject({ ask: z.literal('download'), bytes: z.int().min(1) }),
  z.strictObject({ ask: z.literal('upload'), bytes: z.int().min(1) }),
]);
export type DemoRequest = z.infer<typeof demoRequest>;

export const demoAnswer = z.discriminatedUnion('answer', [
  z.strictObject({ answer: z.literal('provision'), version: z.int(), expiresAt: z.int() }),
  z.strictObject({ answer: z.literal('confirm'), renewed: z.boolean(), expiresAt: z.int() }),
  z.strictObject({ answer: z.literal('run'), output: z.string() }),
  z.strictObject({ answer: z.literal('ping'), payload: z.string() }),
  /** Follows the last byte, whichever way the file went. */
  z.strictObject({ answer: z.literal('file'), bytes: z.int(), sha256: z.string() }),
  z.strictObject({ answer: z.literal('error'), message: z.string() }),
]);
export type DemoAnswer = z.infer<typeof demoAnswer>;

export const CHUNK_BYTES = 65_536;
