import type { z } from 'zod';
import type { CellFrameOf, installAuthorization } from '../contract/control.ts';
import { ControlRequestError } from './control-requests.ts';
import type { HostControl } from './host-control.ts';

export type InstallAuthorization = z.infer<typeof installAuthorization>;

export interface InstallCredential {
  relayDeviceId: string;
  /** base64url(SHA-256(token text)): the phone keeps the token, and the relay only ever sees its hash. */
  newResumeTokenHash: string;
  expectedCurrentHash?: string;
  authorization: InstallAuthorization;
  /** Repeating a call with the same one returns the first result. A new one by default. */
  reqId?: string;
}

type Fields<F> = F extends unknown ? Omit<F, 'type'> : never;
export type CreatedInvite = Fields<CellFrameOf<'invite-created'>>;
export type InstalledCredential = Fields<CellFrameOf<'device-credential-installed'>>;
export type InstallStatus = Fields<CellFrameOf<'device-credential-install-status-result'>>;
export type ConfirmedResume = Fields<CellFrameOf<'device-resume-confirmed'>>;

/**
 * What a host asks of its cell about phones' credentials. All of them reject with `ControlRequestError`, none is
 * repeated by itself.
 */
export class HostCommands {
  readonly #control: () => HostControl | null;

  constructor(control: () => HostControl | null) {
    this.#control = control;
  }

  /** Valid ten minutes at most, for one device; a new one takes the place of those before it. 30 a minute an account. */
  async createInvite(relayDeviceId: string): Promise<CreatedInvite> {
    return strip(await this.#active().request('invite-create', { reqId: crypto.randomUUID(), relayDeviceId }));
  }

  /**
   * Gives a device its next resume credential, good for 30 days; the one before stays good for 24 hours. With
   * `relay-basis`, the connection named must have come by invite and be live.
   */
  async installCredential(install: InstallCredential): Promise<InstalledCredential> {
    const { reqId = crypto.randomUUID(), ...fields } = install;
    return strip(await this.#active().request('device-credential-install', { v: 1, reqId, ...fields }));
  }

  /** What became of an install whose answer was lost. */
  async installStatus(relayDeviceId: string, reqId: string): Promise<InstallStatus> {
    return strip(await this.#active().request('device-credential-install-status', { v: 1, reqId, relayDeviceId }));
  }

  /** Renews the credential that a connection came with; within 30 s of its attachment. */
  async confirmResume(connId: string, reqId: string = crypto.randomUUID()): Promise<ConfirmedResume> {
    return strip(await this.#active().request('device-resume-confirm', { v: 1, reqId, basisConnId: connId }));
  }

  async revokeDevice(relayDeviceId: string): Promise<void> {
    await this.#active().request('device-revoke', { reqId: crypto.randomUUID(), relayDeviceId });
  }

  #active(): HostControl {
    const control = this.#control();
    if (!control) throw new ControlRequestError('not_connected');
    return control;
  }
}

function strip<F extends { type: string }>(frame: F): Fields<F> {
  const { type: _, ...rest } = frame;
  return rest as Fields<F>;
}
