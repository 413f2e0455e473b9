import { existsSync } from 'node:fs';
import { type Browser, chromium } from 'playwright-core';

export type { Browser, Page } from 'playwright-core';

const EXECUTABLES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
/** It may do as root and without a display, and asks nobody else for anything. */
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-dev-shm-usage',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** The Chromium of this machine, headless, with an empty profile. Fails with one line that says what to install. */
export async function startBrowser(): Promise<Browser> {
  const executablePath = EXECUTABLES.find((file) => existsSync(file));
  if (executablePath === undefined) {
    throw new Error(`no Chromium at ${EXECUTABLES.join(', ')}: install it (Debian: apt-get install chromium)`);
  }
  return chromium.launch({ executablePath, args: FLAGS, headless: true });
}
