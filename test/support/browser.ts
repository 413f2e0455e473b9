import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type BrowserContext, chromium } from 'playwright-core';

const EXECUTABLES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-dev-shm-usage',
];

export interface Browser {
  /** A window of its own, with no cookie of another. */
  context(options?: Parameters<ContextMaker>[0]): Promise<BrowserContext>;
  close(): Promise<void>;
}
type ContextMaker = NonNullable<ReturnType<BrowserContext['browser']>>['newContext'];

/** The Chromium of this machine, headless, with an empty profile. Fails with one line that says what to install. */
export async function startBrowser(): Promise<Browser> {
  const executablePath = EXECUTABLES.find((file) => existsSync(file));
  if (executablePath === undefined) {
    throw new Error(`no Chromium at ${EXECUTABLES.join(', ')}: apt-get install chromium`);
  }
  const profile = mkdtempSync(path.join(os.tmpdir(), 'orca-relay-browser-'));
  const first = await chromium.launchPersistentContext(profile, { executablePath, args: FLAGS, headless: true });
  return {
    async context(options) {
      const browser = first.browser();
      if (browser === null) throw new Error('the browser has ended');
      return browser.newContext(options);
    },
    async close() {
      await first.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}
