import { sql } from 'kysely';
import { API_PATH, pathSegment } from '../../src/admin/contracts.ts';
import { expect, ORIGIN, TOKEN, test } from '../support/admin.ts';
import { auditRows, insertDead } from '../support/dead.ts';
import { registerPlainTypes } from '../support/registered.ts';
import { TEST_SCHEMA } from '../support/test.ts';

// The API's half: what a browser does with the page is tested with the dashboard.

const HOSTILE = [
  '<img src=x onerror=alert(1)>',
  '</script><script>alert(1)</script>',
  '"onmouseover=alert(1) x=',
  'javascript:alert(1)',
  '{{7*7}}',
  '<!--',
  '\u202egnp.exe',
];

test('hostile text travels as JSON, letter for letter, and nothing may take it for a page', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  await registerPlainTypes(db, HOSTILE);
  for (const text of HOSTILE) {
    await insertDead(db, 1, { type: text, queue: text, payload: { [text]: text }, error: text });
  }
  await sql`insert into ${sql.table(`${TEST_SCHEMA}.async_replicas`)}
    (id, host, pid, version, roles, slots, busy, overrun, running, settled)
    values (gen_random_uuid(), ${HOSTILE[0]}, 1, '0.1.0', '{}', 1, 0, 0, '[]',
      '{"intervalMs": 0, "outcomes": {}, "waitMs": 0, "waited": 0, "ranMs": 0, "ran": 0}')`.execute(db);
  for (const text of HOSTILE) await admin.call(`POST /queues/${pathSegment(text)}/pause`);
  const { body } = await admin.call('GET /dead');
  expect(body.tasks.map(({ type }: { type: string }) => type).sort()).toEqual([...HOSTILE].sort());
  for (const { id, type, queue, payloadText, lastError } of body.tasks) {
    expect([queue, lastError, JSON.parse(payloadText)]).toEqual([type, type, { [type]: type }]);
    const task = await admin.call(`GET /tasks/${id}`);
    expect(task.body.errors[0].message).toBe(type);
  }
  const places = [
    ...['/dead', '/tasks', '/queues', '/overview', '/replicas', '/audit', '/completed', '/cron'],
    ...HOSTILE.map((text) => `/queues/${pathSegment(text)}`),
    ...HOSTILE.map((text) => `/dead?error=${encodeURIComponent(text)}`),
  ];
  for (const path of places) {
    const answer = await admin.fetch(
      new Request(`${ORIGIN}${API_PATH}${path}`, { headers: { authorization: `Bearer ${TOKEN}` } }),
    );
    expect([path, answer.status, answer.headers.get('content-type')]).toEqual([
      path,
      200,
      'application/json',
    ]);
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    expect(answer.headers.get('content-security-policy')).toContain("default-src 'none'");
  }
  expect((await auditRows(db)).map(({ subject }) => subject)).toEqual(HOSTILE);
});

test('a megabyte without a space is shown on the page of its task, and in no list', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  await registerPlainTypes(db);
  const text = 'x'.repeat(1_000_000);
  const [id] = await insertDead(db, 1, { payload: { text } });
  const { body } = await admin.call(`GET /tasks/${id}`);
  expect(JSON.parse(body.payloadText)).toEqual({ text });
  expect((await admin.call('GET /dead')).body.tasks[0].payloadText).toBeNull();
});
