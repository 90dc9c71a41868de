import { API_PATH } from '../../src/admin/contracts.ts';
import type { Admin, AdminOptions } from '../../src/admin/server.ts';
import { createAdmin } from '../../src/admin/server.ts';
import { test as databaseTest, expect, TEST_SCHEMA, type TestDatabase } from './test.ts';

/** What every admin of a test takes for its tokens. */
export const TOKEN = 'a-token-that-may-act';
export const READ_TOKEN = 'a-token-that-may-read';

/** The host that requests of tests are made to. */
export const ORIGIN = 'http://admin.test';

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it asked for.
  readonly body: any;
}

export interface RequestOptions {
  readonly token?: string | null;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface TestAdmin extends Admin {
  /** `call('GET /queues')`: below the path of the API, with the token that may act unless another is given. */
  call(place: string, options?: RequestOptions): Promise<Answer>;
}

interface Fixtures {
  /** Opens admins over the test's database; they are closed after the test. */
  openAdmin: (options?: Partial<AdminOptions>) => Promise<TestAdmin>;
}

export const test = databaseTest.extend<Fixtures>({
  openAdmin: async ({ database }, use) => {
    const opened: Admin[] = [];
    await use(async (options = {}) => {
      const admin = await createAdmin(optionsFor(database, options));
      opened.push(admin);
      return Object.assign(Object.create(admin) as Admin, {
        fetch: (request: Request) => admin.fetch(request),
        listen: (on: { port: number; host?: string }) => admin.listen(on),
        loginPath: () => admin.loginPath(),
        close: () => admin.close(),
        call: (place: string, of?: RequestOptions) => call(admin, options.basePath ?? '', place, of),
      });
    });
    await Promise.all(opened.map((admin) => admin.close()));
  },
});

export function optionsFor(database: TestDatabase, options: Partial<AdminOptions>): AdminOptions {
  const defaults =
    'authorize' in options || 'token' in options ? {} : { token: TOKEN, readToken: READ_TOKEN };
  return { database: database.connection, schema: TEST_SCHEMA, ...defaults, ...options };
}

async function call(
  admin: Admin,
  basePath: string,
  place: string,
  { token = TOKEN, body, headers = {} }: RequestOptions = {},
): Promise<Answer> {
  const [method, path] = place.split(' ') as [string, string];
  const response = await admin.fetch(
    new Request(`${ORIGIN}${basePath}${API_PATH}${path}`, {
      method,
      headers: {
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    }),
  );
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.includes('json') === true;
  return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text };
}

/** As a browser sends it: by cookie, with what it says of where the request comes from. */
export async function browser(
  admin: TestAdmin,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body?: string,
): Promise<Response> {
  const of = { method, headers, ...(body === undefined ? {} : { body }) };
  return admin.fetch(new Request(`${ORIGIN}${API_PATH}${path}`, of));
}

/** What a browser says of a request of the page itself. */
export const SAME_ORIGIN = { 'sec-fetch-site': 'same-origin', origin: ORIGIN };

/** Answers the cookie of a new session. */
export async function logIn(admin: TestAdmin, token = TOKEN): Promise<string> {
  const headers = { ...SAME_ORIGIN, 'content-type': 'application/json' };
  const answer = await browser(admin, 'POST', '/login', headers, JSON.stringify({ token }));
  expect(answer.status).toBe(200);
  return cookieOf(answer);
}

/** The cookie that an answer sets, as it is sent back. */
export function cookieOf(answer: Response): string {
  const [pair] = (answer.headers.get('set-cookie') ?? '').split(';');
  expect(pair).toMatch(/^taskq_session=[\w-]{43}$/);
  return pair as string;
}

export { expect };
