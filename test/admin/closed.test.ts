import { createHash, timingSafeEqual } from 'node:crypto';
import { vi } from 'vitest';
import { API_PATH } from '../../src/admin/contracts.ts';
import { ROUTES } from '../../src/admin/routes.ts';
import { createAdmin } from '../../src/admin/server.ts';
import { ADMIN_ONCE_MS, ADMIN_SESSION_IDLE_MS, ADMIN_SESSION_MS } from '../../src/domain/limits.ts';
import {
  browser,
  cookieOf,
  expect,
  logIn,
  ORIGIN,
  optionsFor,
  READ_TOKEN,
  SAME_ORIGIN,
  TOKEN,
  test,
} from '../support/admin.ts';
import { ManualClock } from '../support/clock.ts';
import { auditRows, insertDead } from '../support/dead.ts';
import { allRows } from '../support/rows.ts';

vi.mock('node:crypto', async (original) => {
  const crypto = await original<typeof import('node:crypto')>();
  return { ...crypto, timingSafeEqual: vi.fn(crypto.timingSafeEqual) };
});

const WRONG = 'a-token-that-is-wrong';

test('without a token and without authorize it does not start', async ({ database }) => {
  const { token: _, readToken: __, ...options } = optionsFor(database, {});
  await expect(createAdmin(options)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  await expect(createAdmin({ ...options, token: 'short' })).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  await expect(createAdmin({ ...options, readToken: '' })).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  await expect(createAdmin({ ...options, token: TOKEN, readToken: TOKEN })).rejects.toMatchObject({
    code: 'CONFIG_INVALID',
  });
});

test('nothing is answered to whoever has no token', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await insertDead(db, 1);
  const before = await allRows(db);
  const own = ['GET /session', 'GET /events', 'GET /openapi.json', 'GET /nowhere'];
  const places = [...ROUTES.map(({ method, path }) => `${method} ${path.replaceAll(/:\w+/g, '1')}`), ...own];
  for (const place of places) {
    const answer = await admin.call(place, { token: null });
    expect([place, answer.status, answer.body.code]).toEqual([place, 401, 'UNAUTHENTICATED']);
  }
  for (const header of [WRONG, `${TOKEN}x`, TOKEN.slice(1), '', `${TOKEN} ${TOKEN}`]) {
    const answer = await admin.call('GET /queues', {
      token: null,
      headers: { authorization: `Bearer ${header}` },
    });
    expect(answer.status).toBe(401);
  }
  const basic = { authorization: `Basic ${Buffer.from(`admin:${TOKEN}`).toString('base64')}` };
  expect((await admin.call('GET /queues', { token: null, headers: basic })).status).toBe(401);
  expect((await admin.call(`GET /queues?token=${TOKEN}`, { token: null })).status).toBe(401);
  expect(await allRows(db)).toEqual(before);
});

test('a token is compared by its hash, in constant time, with each that there is', async ({ openAdmin }) => {
  const admin = await openAdmin();
  const compare = vi.mocked(timingSafeEqual);
  compare.mockClear();
  await admin.call('GET /session', { token: TOKEN });
  expect(compare).toHaveBeenCalledTimes(2);
  const hash = createHash('sha256').update(TOKEN).digest();
  expect(compare.mock.calls.map(([, given]) => Buffer.from(given as Uint8Array))).toEqual([hash, hash]);
});

test('it listens on this machine alone unless told', async ({ openAdmin }) => {
  const admin = await openAdmin();
  const { url } = await admin.listen({ port: 0 });
  expect(new URL(url).hostname).toBe('127.0.0.1');
  const answer = await fetch(`${url.slice(0, -1)}${API_PATH}/session`, {
    headers: { authorization: `Bearer ${TOKEN}` },
  });
  expect(await answer.json()).toEqual({ actor: 'token', role: 'act', isSession: false });
});

test('failed logins are limited for an address, and for all together', async ({ openAdmin }) => {
  const clock = new ManualClock();
  let address = '192.0.2.1';
  const admin = await openAdmin({ clock, timers: clock, clientAddress: () => address });
  const session = await logIn(admin);
  for (let tries = 0; tries < 10; tries += 1) {
    expect((await admin.call('GET /session', { token: WRONG })).status).toBe(401);
  }
  const limited = await admin.call('GET /session', { token: TOKEN });
  expect([limited.status, limited.body.code, limited.headers.get('retry-after')]).toEqual([
    429,
    'RATE_LIMITED',
    '300',
  ]);
  // Neither another address nor a session that stands is kept out.
  expect((await browser(admin, 'GET', '/session', { ...SAME_ORIGIN, cookie: session })).status).toBe(200);
  address = '192.0.2.2';
  expect((await admin.call('GET /session', { token: TOKEN })).status).toBe(200);
  for (let tries = 0; tries < 90; tries += 1) {
    address = `198.51.100.${tries}`;
    expect((await admin.call('GET /session', { token: WRONG })).status).toBe(401);
  }
  address = '203.0.113.1';
  expect((await admin.call('GET /session', { token: TOKEN })).status).toBe(429);
  expect((await admin.fetch(new Request(`${ORIGIN}/login?once=${WRONG}`))).status).toBe(429);
  clock.advance(300_000);
  expect((await admin.call('GET /session', { token: TOKEN })).status).toBe(200);
});

test('a login gives a cookie that script cannot read and other sites do not send', async ({ openAdmin }) => {
  const admin = await openAdmin({ basePath: '/ops/taskq' });
  const request = (headers: Record<string, string>) =>
    admin.fetch(
      new Request(`${ORIGIN}/ops/taskq${API_PATH}/login`, {
        method: 'POST',
        headers: { ...SAME_ORIGIN, 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ token: READ_TOKEN }),
      }),
    );
  const plain = await request({});
  expect(await plain.json()).toEqual({ actor: 'read-token', role: 'read', isSession: true });
  expect(plain.headers.get('set-cookie')).toMatch(
    /^taskq_session=[\w-]{43}; Path=\/ops\/taskq\/; HttpOnly; SameSite=Strict$/,
  );
  const behindTls = await request({ 'x-forwarded-proto': 'https' });
  expect(behindTls.headers.get('set-cookie')).toMatch(/; Secure$/);
});

test('a session ends at its logout, when it is idle, and after half a day', async ({ openAdmin }) => {
  const clock = new ManualClock();
  const admin = await openAdmin({ clock, timers: clock });
  const stands = async (cookie: string) =>
    (await browser(admin, 'GET', '/session', { ...SAME_ORIGIN, cookie })).status === 200;
  const out = await logIn(admin);
  const idle = await logIn(admin);
  const busy = await logIn(admin);
  const ended = await browser(admin, 'POST', '/logout', { ...SAME_ORIGIN, cookie: out });
  expect(ended.status).toBe(204);
  expect(ended.headers.get('set-cookie')).toContain('Max-Age=0');
  expect(await stands(out)).toBe(false);
  for (
    let passed = 0;
    passed < ADMIN_SESSION_MS - ADMIN_SESSION_IDLE_MS;
    passed += ADMIN_SESSION_IDLE_MS / 2
  ) {
    clock.advance(ADMIN_SESSION_IDLE_MS / 2);
    expect(await stands(busy)).toBe(true);
  }
  expect(await stands(idle)).toBe(false);
  clock.advance(ADMIN_SESSION_IDLE_MS - 1);
  expect(await stands(busy)).toBe(true);
  clock.advance(1);
  expect(await stands(busy)).toBe(false);
});

test('a link logs in once, soon, and not by a look at it', async ({ openAdmin }) => {
  const clock = new ManualClock();
  const admin = await openAdmin({ clock, timers: clock });
  const visit = (path: string, method = 'GET') => admin.fetch(new Request(`${ORIGIN}${path}`, { method }));
  const link = admin.loginPath();
  const looked = await visit(link, 'HEAD');
  expect(looked.headers.get('set-cookie')).toBeNull();
  const first = await visit(link);
  expect([first.status, first.headers.get('location')]).toEqual([303, '/']);
  expect(first.headers.get('referrer-policy')).toBe('no-referrer');
  const session = await browser(admin, 'GET', '/session', { ...SAME_ORIGIN, cookie: cookieOf(first) });
  expect(await session.json()).toEqual({ actor: 'link', role: 'act', isSession: true });
  const second = await visit(link);
  expect([second.status, second.headers.get('set-cookie')]).toEqual([401, null]);
  const late = admin.loginPath();
  clock.advance(ADMIN_ONCE_MS);
  expect((await visit(late)).status).toBe(401);
});

test('the sign-on of the application decides who may do what, and stands in the audit', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin({
    authorize(request) {
      const user = request.headers.get('x-user');
      if (user === null) return undefined;
      if (user === 'mistake') return { actor: 'mistake', role: 'admin' as never };
      return { actor: user, role: user === 'anna' ? 'act' : 'read' };
    },
  });
  const as = (user: string, more: Record<string, string> = {}) => ({
    token: null,
    headers: { 'x-user': user, ...more },
  });
  expect((await admin.call('GET /queues', { token: null })).status).toBe(401);
  expect((await admin.call('POST /queues/low/pause', as('bert'))).status).toBe(403);
  expect((await admin.call('POST /queues/low/pause', as('mistake'))).status).toBe(500);
  // The application's own cookie is as ambient as ours.
  const foreign = as('anna', { cookie: 'app=1', origin: 'https://evil.test' });
  expect((await admin.call('POST /queues/low/pause', foreign)).body.code).toBe('CROSS_SITE');
  expect(await auditRows(db)).toEqual([]);
  expect((await admin.call('POST /queues/low/pause', as('anna'))).status).toBe(200);
  expect(await auditRows(db)).toMatchObject([{ actor: 'api:anna', action: 'queue.pause' }]);
});

test('every answer says that nothing of it may be run, framed, stored or guessed at', async ({
  openAdmin,
}) => {
  const admin = await openAdmin({
    assets: (path) =>
      path === '/' ? { body: '<!doctype html>', contentType: 'text/html; charset=utf-8' } : undefined,
  });
  const paths = ['/', '/absent', '/login', `${API_PATH}/queues`, `${API_PATH}/absent`, '/%ff'];
  for (const path of paths) {
    const { headers } = await admin.fetch(new Request(`${ORIGIN}${path}`));
    const policy = headers.get('content-security-policy') ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toContain('unsafe');
    expect([
      headers.get('x-content-type-options'),
      headers.get('cache-control'),
      headers.get('referrer-policy'),
    ]).toEqual(['nosniff', 'no-store', 'no-referrer']);
    expect(headers.get('access-control-allow-origin')).toBeNull();
  }
});

test('below its base path it stays within it', async ({ openAdmin }) => {
  const found: string[] = [];
  const admin = await openAdmin({
    basePath: '/taskq',
    assets(path) {
      found.push(path);
      return { body: 'page', contentType: 'text/plain' };
    },
  });
  const get = (path: string) => admin.fetch(new Request(`${ORIGIN}${path}`));
  expect((await get('/taskq')).headers.get('location')).toBe('/taskq/');
  expect(await (await get('/taskq/')).text()).toBe('page');
  await get('/taskq/assets/app.js');
  await get('/taskq/../assets/%2e%2e/app.js');
  expect((await get('/elsewhere')).status).toBe(404);
  expect(found).toEqual(['/', '/assets/app.js']);
  expect((await admin.call('GET /session')).status).toBe(200);
});
