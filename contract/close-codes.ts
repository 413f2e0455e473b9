/** WebSocket close codes of the relay (4000–4999 is the range left to applications). None of them ever carries a URL. */
export const CLOSE = {
  BAD_OUTER_CREDENTIAL: 4401,
  HOST_OFFLINE: 4404,
  PEER_DROPPED: 4408,
  WRONG_CELL: 4409,
  LIMIT_EXCEEDED: 4429,
  DRAINING: 4503,
} as const;

export type CloseName = keyof typeof CLOSE;
export type CloseCode = (typeof CLOSE)[CloseName];

/** Every reason a relay writes into a close frame, with its code: the closed set behind logs and metric labels. */
export const CLOSE_REASONS = {
  'host hello timeout': CLOSE.BAD_OUTER_CREDENTIAL,
  'host hello must be text': CLOSE.BAD_OUTER_CREDENTIAL,
  'invalid host hello': CLOSE.BAD_OUTER_CREDENTIAL,
  'invalid host public key': CLOSE.BAD_OUTER_CREDENTIAL,
  'host key binding mismatch': CLOSE.BAD_OUTER_CREDENTIAL,
  'host proof timeout': CLOSE.BAD_OUTER_CREDENTIAL,
  'invalid host proof': CLOSE.BAD_OUTER_CREDENTIAL,
  'invalid control JSON': CLOSE.BAD_OUTER_CREDENTIAL,
  'refresh identity changed': CLOSE.BAD_OUTER_CREDENTIAL,
  'relay authorization expired': CLOSE.BAD_OUTER_CREDENTIAL,
  'invalid host data auth': CLOSE.BAD_OUTER_CREDENTIAL,
  'invalid host data ticket': CLOSE.BAD_OUTER_CREDENTIAL,
  'first frame timeout': CLOSE.BAD_OUTER_CREDENTIAL,
  'first frame must be text': CLOSE.BAD_OUTER_CREDENTIAL,
  'invalid relay auth': CLOSE.BAD_OUTER_CREDENTIAL,
  'invalid invite': CLOSE.BAD_OUTER_CREDENTIAL,
  'credential refused': CLOSE.BAD_OUTER_CREDENTIAL,
  'relay connection rejected': CLOSE.HOST_OFFLINE,
  'signed-out': CLOSE.HOST_OFFLINE,
  'host attach timeout': CLOSE.HOST_OFFLINE,
  'peer connection dropped': CLOSE.PEER_DROPPED,
  'control rebound': CLOSE.PEER_DROPPED,
  'replaced by a newer generation': CLOSE.PEER_DROPPED,
  'control activation superseded': CLOSE.PEER_DROPPED,
  'control silence timeout': CLOSE.PEER_DROPPED,
  'wrong assignment epoch': CLOSE.WRONG_CELL,
  'assignment changed during host proof': CLOSE.WRONG_CELL,
  'assignment moved': CLOSE.WRONG_CELL,
  'control could not re-register': CLOSE.WRONG_CELL,
  'credential unknown here': CLOSE.WRONG_CELL,
  'host seated elsewhere': CLOSE.WRONG_CELL,
  'seated on a newer cell': CLOSE.WRONG_CELL,
  'control changed during accept': CLOSE.WRONG_CELL,
  'too many connections': CLOSE.LIMIT_EXCEEDED,
  'relay queue limit exceeded': CLOSE.LIMIT_EXCEEDED,
  'wedged relay link': CLOSE.LIMIT_EXCEEDED,
  'control activation queue stalled': CLOSE.LIMIT_EXCEEDED,
  'relay temporarily unavailable': CLOSE.LIMIT_EXCEEDED,
  'relay draining': CLOSE.DRAINING,
  'resolve configured director': CLOSE.DRAINING,
  'control lease expired': CLOSE.DRAINING,
  'control assignment missing': CLOSE.DRAINING,
  'control migration completed': CLOSE.DRAINING,
  'control activity moved': CLOSE.DRAINING,
  'host retired during attachment': CLOSE.DRAINING,
  'connect to assigned cell': CLOSE.DRAINING,
} as const satisfies Record<string, CloseCode>;

export type CloseReason = keyof typeof CLOSE_REASONS;

/** What a desktop may say as it leaves (close 1000 on its control); any other text means unknown. */
export const HOST_CLOSE_REASONS = ['signed-out'] as const;
export type HostCloseReason = (typeof HOST_CLOSE_REASONS)[number];

export function isHostCloseReason(text: string): text is HostCloseReason {
  return (HOST_CLOSE_REASONS as readonly string[]).includes(text);
}
