import { ROUTES } from '../../src/admin/routes.ts';
import { browser, expect, logIn, ORIGIN, SAME_ORIGIN, test } from '../support/admin.ts';
import { auditRows, insertDead } from '../support/dead.ts';
import { allRows } from '../support/rows.ts';

test('a request that another site causes changes nothing, whatever it looks like', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  const [id] = await insertDead(db, 1);
  const before = await allRows(db);
  const cookie = await logIn(admin);
  const foreign: Readonly<Record<string, string>>[] = [
    { 'sec-fetch-site': 'cross-site', origin: 'https://evil.test' },
    { 'sec-fetch-site': 'same-site', origin: 'http://other.admin.test' },
    { 'sec-fetch-site': 'none' },
    { origin: 'https://evil.test' },
    { origin: 'null' },
    { origin: 'http://admin.test.evil.test' },
    { origin: 'http://evil-admin.test' },
    { origin: 'http://admin.test:8080' },
    // An old browser's, which says nothing.
    {},
  ];
  const bodies = [
    'application/json',
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
  ];
  const places = [
    '/dead/drop',
    `/tasks/${id}/drop`,
    '/queues/default/pause',
    '/queues/default/archived/run-all',
    '/logout',
  ];
  for (const headers of foreign) {
    for (const type of bodies) {
      for (const path of places) {
        const answer = await browser(
          admin,
          'POST',
          path,
          { cookie, ...headers, 'content-type': type },
          '{"filter":{}}',
        );
        expect([path, headers, answer.status]).toEqual([path, headers, 403]);
        expect(answer.headers.get('access-control-allow-origin')).toBeNull();
      }
    }
    const deleted = await browser(admin, 'DELETE', `/queues/default/archived/${id}`, { cookie, ...headers });
    expect(deleted.status).toBe(403);
  }
  // Of this site, but as a form would send it.
  const form = { cookie, ...SAME_ORIGIN, 'content-type': 'text/plain' };
  expect((await browser(admin, 'POST', '/dead/drop', form, '{"filter":{}}')).status).toBe(415);
  expect(await allRows(db)).toEqual(before);
  expect(await auditRows(db)).toEqual([]);
  expect((await browser(admin, 'GET', '/session', { ...SAME_ORIGIN, cookie })).status).toBe(200);
});

test('GET and HEAD change nothing on any path, with any disguise of the method', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  const [id] = await insertDead(db, 1);
  const before = await allRows(db);
  const cookie = await logIn(admin);
  const acting = ROUTES.filter(({ method }) => method !== 'GET');
  expect(acting.length).toBeGreaterThan(10);
  for (const { path } of acting) {
    const place = path.replace(':queue', 'default').replace(':id', String(id)).replace(':entry', 'any');
    for (const method of ['GET', 'HEAD']) {
      for (const disguise of [`${place}?_method=POST`, place]) {
        const headers = {
          cookie,
          ...SAME_ORIGIN,
          'x-http-method-override': 'POST',
          'x-method-override': 'DELETE',
        };
        const answer = await browser(admin, method, disguise, headers);
        expect([disguise, answer.status >= 400 || place === '/queues/default']).toEqual([disguise, true]);
      }
    }
  }
  expect(await allRows(db)).toEqual(before);
  expect(await auditRows(db)).toEqual([]);
});

test('a browser of this site acts, and so does a program with a token from anywhere', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  const ids = await insertDead(db, 3);
  const cookie = await logIn(admin);
  const bySession = await browser(admin, 'POST', `/tasks/${ids[0]}/replay`, { cookie, ...SAME_ORIGIN });
  expect(bySession.status).toBe(200);
  const byOrigin = await browser(admin, 'POST', `/tasks/${ids[1]}/replay`, { cookie, origin: ORIGIN });
  expect(byOrigin.status).toBe(200);
  expect((await admin.call(`POST /tasks/${ids[2]}/replay`)).status).toBe(200);
});
