import { createHmac } from 'node:crypto';
import { errors, jwtVerify, SignJWT } from 'jose';
import { z } from 'zod';
import { LIMITS } from '../contract/limits.ts';
import { type Clock, systemClock } from './clock.ts';
import { atNow, seconds } from './tokens.ts';

/** What a director shows to a cell: who it is, and to which cell it speaks, so that no cell can use it at another. */

const ISSUER = 'orca-relay-director';
const KEY_LABEL = 'orca-relay-service-token-v1';
const MAX_TOKEN_LENGTH = 4_096;

export interface ServiceIdentity {
  /** The process that asks. */
  caller: string;
  role: 'director';
}

const claims = z.object({ sub: z.string().min(1).max(128), role: z.literal('director') });

export function cellAudience(cellId: string): string {
  return `orca-relay-cell:${cellId}`;
}

/** Signs for 15 min; whoever sends many uses one for 10. */
export async function signServiceToken(
  signingKey: string,
  { caller, role, audience }: ServiceIdentity & { audience: string },
  clock: Clock = systemClock,
): Promise<string> {
  const issuedAt = seconds(clock.wallNow());
  return new SignJWT({ role })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setIssuer(ISSUER)
    .setAudience(audience)
    .setSubject(caller)
    .setIssuedAt(issuedAt)
    .setExpirationTime(issuedAt + LIMITS.serviceTokenTtlMs / 1_000)
    .sign(serviceKey(signingKey));
}

/** Null for whatever is no service token for this audience now; clocks may be 60 s apart. */
export async function verifyServiceToken(
  signingKey: string,
  token: string,
  { audience }: { audience: string },
  clock: Clock = systemClock,
): Promise<ServiceIdentity | null> {
  if (token.length > MAX_TOKEN_LENGTH) return null;
  try {
    const options = {
      algorithms: ['HS256'],
      issuer: ISSUER,
      audience,
      clockTolerance: LIMITS.serviceTokenSkewMs / 1_000,
      // however far off its end is: nobody gives itself a longer life
      maxTokenAge: LIMITS.serviceTokenTtlMs / 1_000,
      ...atNow(clock),
    };
    const { sub, role } = claims.parse((await jwtVerify(token, serviceKey(signingKey), options)).payload);
    return { caller: sub, role };
  } catch (error) {
    if (error instanceof errors.JOSEError || error instanceof z.ZodError) return null;
    throw error;
  }
}

function serviceKey(signingKey: string): Buffer {
  return createHmac('sha256', signingKey).update(KEY_LABEL).digest();
}
