import type { Browser, BrowserContext, Page } from 'playwright-core';
import { type Admin, type AdminOptions, createAdmin } from '../../src/admin/index.ts';
import { launchChromium, requireChromium } from './browser.ts';
import { FaultProxy } from './fault-proxy.ts';
import { test as replicaTest } from './replica.ts';
import { TEST_SCHEMA } from './schema.ts';

export const ADMIN_TOKEN = 'a-token-that-may-act';
export const READ_TOKEN = 'a-token-that-may-read';

/** What a page did that no page of ours should do. */
export interface Mischief {
  /** Requests to another origin. */
  readonly foreign: string[];
  readonly dialogs: string[];
  /** Errors that nobody caught, and what the content security policy had to stop. */
  readonly errors: string[];
}

export interface TestDashboard {
  readonly admin: Admin;
  /** Between the server and its database. */
  readonly network: FaultProxy;
  /** Ends with a slash. */
  readonly url: string;
  readonly page: Page;
  readonly context: BrowserContext;
  readonly mischief: Mischief;
  /** Logs in and waits for the first snapshot; ends at `hash`. */
  enter(hash?: string, token?: string): Promise<void>;
  /** Goes to a place of the page. */
  go(hash: string): Promise<void>;
}

interface Fixtures {
  readonly browser: Browser;
  readonly adminOptions: Partial<AdminOptions>;
  readonly dashboard: TestDashboard;
}

/** `test` with the dashboard over the test's database, in a browser window of the test's own. */
export const test = replicaTest.extend<Fixtures>({
  browser: async ({ skip }, use) => {
    requireChromium((reason) => skip(reason));
    const browser = await launchChromium();
    await use(browser);
    await browser.close();
  },
  adminOptions: {},
  dashboard: async ({ browser, database, adminOptions }, use) => {
    const network = await FaultProxy.start(database.connection);
    const admin = await createAdmin({
      database: network.connection,
      schema: TEST_SCHEMA,
      token: ADMIN_TOKEN,
      readToken: READ_TOKEN,
      ...adminOptions,
    });
    const { url } = await admin.listen({ port: 0 });
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
    const page = await context.newPage();
    const mischief = watch(page, url);
    await use({
      admin,
      network,
      url,
      page,
      context,
      mischief,
      go: (hash) => page.goto(url + hash).then(() => undefined),
      async enter(hash = '#/', token = ADMIN_TOKEN) {
        await page.goto(url + hash);
        await page.getByLabel('Access token').fill(token);
        await page.getByRole('button', { name: 'Log in' }).click();
        await page.getByText('Live', { exact: true }).waitFor({ state: 'attached' });
      },
    });
    await context.close();
    await admin.close();
    await network.stop();
  },
});

function watch(page: Page, url: string): Mischief {
  const mischief: Mischief = { foreign: [], dialogs: [], errors: [] };
  const { origin } = new URL(url);
  page.on('request', (request) => {
    const to = request.url();
    if (!to.startsWith(`${origin}/`) && !to.startsWith('data:')) mischief.foreign.push(to);
  });
  page.on('dialog', (dialog) => {
    mischief.dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  page.on('pageerror', (error) => mischief.errors.push(String(error.stack)));
  page.on('console', (message) => {
    // A refusal by the API is logged by the browser itself, and is no error of the page.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
      mischief.errors.push(message.text());
    }
  });
  return mischief;
}
