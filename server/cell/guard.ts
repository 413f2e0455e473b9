import type { Logger } from '../log.ts';
import type { PeerSocket } from './peer-socket.ts';

/** Work that a frame sets off: whatever goes wrong in it costs this socket, not the process. */
export function guard(log: Logger, socket: PeerSocket, work: Promise<unknown>): void {
  work.catch((error: unknown) => {
    log.error({ event: 'orca_relay_frame_failed', error });
    socket.close('relay temporarily unavailable');
  });
}
