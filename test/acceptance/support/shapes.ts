/**
 * What the relay may send, field by field, from wire 1.1, 1.4 and 1.5: shipped clients parse strictly, so one key too
 * many breaks them. Written apart from `contract/` on purpose.
 */
type Check = (value: unknown) => boolean;
interface Shape {
  required: Record<string, Check>;
  optional?: Record<string, Check>;
}

const text =
  (min: number, max: number): Check =>
  (value) =>
    typeof value === 'string' && value.length >= min && value.length <= max;
const pattern =
  (regex: RegExp): Check =>
  (value) =>
    typeof value === 'string' && regex.test(value);
const integer =
  (min: number, max = Number.MAX_SAFE_INTEGER): Check =>
  (value) =>
    Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max;
const oneOf =
  (...values: unknown[]): Check =>
  (value) =>
    values.includes(value);
const listOf =
  (check: Check, max: number): Check =>
  (value) =>
    Array.isArray(value) && value.length <= max && value.every(check);

const opaqueId = text(1, 128);
const token32 = pattern(/^[A-Za-z0-9_-]{43}$/);
const key32 = pattern(/^[A-Za-z0-9+/]{43}=$/);
const nonce24 = pattern(/^[A-Za-z0-9+/]{32}$/);
const epochMs = integer(0);
const version = integer(1);

const PENDING: Shape = {
  required: { connId: opaqueId, connTicket: token32 },
  optional: { kind: oneOf('invite', 'resume'), relayDeviceId: opaqueId },
};

const INSTALLED: Shape = {
  required: {
    v: oneOf(1),
    reqId: opaqueId,
    authorizationMode: oneOf('relay-basis', 'authenticated-direct'),
    currentVersion: version,
    resumeExpiresAt: epochMs,
  },
  optional: { graceExpiresAt: epochMs },
};

const TO_HOST: Record<string, Shape> = {
  'host-challenge': {
    required: {
      challengeId: opaqueId,
      relayEphemeralPublicKeyB64: key32,
      nonceB64: nonce24,
      ciphertextB64: text(1, 16_384),
      expiresAt: epochMs,
    },
  },
  'host-hello-ack': {
    required: {
      v: oneOf(1),
      generation: version,
      controlResumeSecret: token32,
      leaseExpiresAt: epochMs,
      activeConnIds: listOf(opaqueId, 8),
      pendingConns: listOf((value) => shapeProblem(value, PENDING) === null, 8),
    },
  },
  'conn-open': {
    required: {
      connId: opaqueId,
      connTicket: token32,
      kind: oneOf('invite', 'resume'),
      relayDeviceId: opaqueId,
      attachDeadlineMs: integer(1, 60_000),
    },
  },
  ping: { required: { t: epochMs } },
  drain: { required: { graceMs: integer(0, 3_600_000), recovery: oneOf('resolve-director') } },
  'invite-created': {
    required: { reqId: opaqueId, inviteToken: token32, expiresAt: epochMs, maxAttempts: integer(1, 16) },
  },
  'device-credential-installed': INSTALLED,
  'device-credential-install-status-result': {
    required: { v: oneOf(1), reqId: opaqueId, state: oneOf('not-found', 'committed') },
    optional: { result: (value) => installedProblem(value) === null },
  },
  'device-resume-confirmed': {
    required: {
      v: oneOf(1),
      reqId: opaqueId,
      currentVersion: version,
      acceptedAs: oneOf('current', 'grace'),
      renewed: oneOf(true, false),
      resumeExpiresAt: epochMs,
    },
    optional: { graceExpiresAt: epochMs },
  },
  'device-revoked': { required: { reqId: opaqueId } },
  'control-error': { required: { code: text(1, 128) }, optional: { reqId: opaqueId } },
};

const HELLO_FAILED: Shape = {
  required: { type: oneOf('relay-hello'), ok: oneOf(false), code: oneOf(4401, 4404, 4408, 4409, 4429, 4503) },
};
const HELLO_INVITE: Shape = {
  required: { type: oneOf('relay-hello'), ok: oneOf(true), credentialKind: oneOf('invite'), leaseExpiresAt: epochMs },
};
const HELLO_RESUME: Shape = {
  required: {
    type: oneOf('relay-hello'),
    ok: oneOf(true),
    credentialKind: oneOf('resume'),
    leaseExpiresAt: epochMs,
    acceptedCredentialVersion: version,
    acceptedAs: oneOf('current', 'grace'),
    resumeExpiresAt: epochMs,
  },
  optional: { graceExpiresAt: epochMs },
};
const MOVED: Shape = {
  required: {
    type: oneOf('relay-moved'),
    v: oneOf(1),
    cellUrl: pattern(/^https?:\/\/[^/]+$/),
    assignmentEpoch: integer(1),
  },
};

function shapeProblem(value: unknown, shape: Shape): string | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'not an object';
  const record = value as Record<string, unknown>;
  for (const [name, check] of Object.entries(shape.required)) {
    if (!(name in record)) return `${name} is missing`;
    if (!check(record[name])) return `${name} is ${JSON.stringify(record[name])}`;
  }
  for (const [name, held] of Object.entries(record)) {
    if (name in shape.required) continue;
    const check = shape.optional?.[name];
    if (check === undefined) return `${name} is not in the contract`;
    if (!check(held)) return `${name} is ${JSON.stringify(held)}`;
  }
  return null;
}

function installedProblem(value: unknown): string | null {
  const typed = value as Record<string, unknown> | null;
  if (typed?.type !== undefined && typed.type !== 'device-credential-installed') return 'result of another type';
  const { type: _type, ...rest } = typed ?? {};
  return shapeProblem(rest, INSTALLED);
}

/** What is wrong with a control message of the relay, or null. */
export function controlProblem(message: Record<string, unknown>): string | null {
  const { type, ...rest } = message;
  const shape = TO_HOST[String(type)];
  if (shape === undefined) return `message type ${JSON.stringify(type)} is not in the contract`;
  const problem = shapeProblem(rest, shape);
  if (problem === null && type === 'device-credential-install-status-result') {
    if ((rest.state === 'committed') !== 'result' in rest) return 'result goes with committed, and only with it';
  }
  return problem === null ? null : `${type}: ${problem}`;
}

/** What is wrong with the relay's answer to a phone's first frame, or null. */
export function phoneProblem(message: Record<string, unknown>): string | null {
  if (message.type === 'relay-moved') return shapeProblem(message, MOVED);
  if (message.ok === false) return shapeProblem(message, HELLO_FAILED);
  return shapeProblem(message, message.credentialKind === 'resume' ? HELLO_RESUME : HELLO_INVITE);
}
