import { existsSync } from 'node:fs';
import { type Browser, chromium } from 'playwright-core';

/** Debian's, Fedora's and Google's own; whichever is there. */
const PROGRAMS = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
];

/** Nothing of the browser's own leaves the machine, or a test that looks for requests elsewhere would find those. */
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/**
 * Skips the test, and says so, where there is no Chromium.
 * With `TASKQ_REQUIRE_SYSTEM_TOOLS=1`, as in CI, the test fails instead: a skipped promise is not a kept one.
 */
export function requireChromium(skip: (reason: string) => never): void {
  if (chromiumProgram() !== undefined) return;
  const reason = 'Chromium is not installed (apt-get install chromium)';
  if (process.env['TASKQ_REQUIRE_SYSTEM_TOOLS'] === '1') throw new Error(reason);
  console.warn(`SKIPPED: ${reason}`);
  skip(reason);
}

export function launchChromium(): Promise<Browser> {
  const executablePath = chromiumProgram();
  if (executablePath === undefined) throw new Error('Chromium is not installed');
  return chromium.launch({ executablePath, args: ARGUMENTS });
}

function chromiumProgram(): string | undefined {
  return PROGRAMS.find((program) => existsSync(program));
}
