import { sql } from 'kysely';
import type { z } from 'zod';
import { type ComponentName, components, pathSegment, type Wire } from '../../src/admin/contracts.ts';
import { type Answer, expect, READ_TOKEN, type TestAdmin, TOKEN, test } from '../support/admin.ts';
import { cronOf } from '../support/cron.ts';
import { auditRows, insertDead } from '../support/dead.ts';
import { registerPlainTypes } from '../support/registered.ts';
import { findRow, insertRow, insertRows, rowOf } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

/** The body, once the contract has found nothing too much and nothing missing in it. */
function ok<Name extends ComponentName>(answer: Answer, name: Name): Wire<Name> {
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return (components[name] as unknown as z.ZodType<Wire<Name>>).parse(answer.body);
}

function refused(answer: Answer, status: number, code: string): Wire<'Problem'> {
  expect([answer.status, answer.body.code], JSON.stringify(answer.body)).toEqual([status, code]);
  expect(answer.headers.get('content-type')).toBe('application/problem+json');
  return components.Problem.parse(answer.body);
}

const exact = (count: number) => ({ count, isAtLeast: false });

test('the snapshot of a queue has every count of it, in our words and the older ones', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  await insertRows(db, 3, { queue: 'critical' });
  await insertRow(db, { queue: 'critical', leasedSeconds: 60, attemptCount: 1 });
  await insertRows(db, 2, { queue: 'critical', runAtSeconds: 600 });
  await insertRow(db, { queue: 'critical', runAtSeconds: 600, attemptCount: 2 });
  await insertDead(db, 4, { queue: 'critical' });
  await insertRow(db, { queue: 'low', runAtSeconds: 60 });
  await admin.call('POST /queues/low/pause');

  const { queues } = ok(await admin.call('GET /queues'), 'QueueList');
  const [critical, low] = queues;
  expect(queues.map(({ queue }) => queue)).toEqual(['critical', 'low']);
  expect(critical).toMatchObject({
    pending: exact(7),
    due: exact(3),
    running: exact(1),
    active: exact(1),
    scheduled: exact(2),
    retrying: exact(1),
    retry: exact(1),
    dead: exact(4),
    archived: exact(4),
    completed: exact(0),
    size: exact(11),
    paused: false,
    weight: null,
  });
  expect(critical?.latencySeconds).toBeGreaterThan(59);
  expect(low).toMatchObject({ paused: true, scheduled: exact(1), latencySeconds: 0 });
  const detail = ok(await admin.call('GET /queues/critical'), 'QueueDetail');
  expect(detail.types).toMatchObject([{ type: 'plain', pending: exact(7) }]);
  refused(await admin.call('GET /queues/absent'), 404, 'NOT_FOUND');
});

test('a queue that no live replica serves is named while it has due tasks', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await insertRow(db, { queue: 'served' });
  await insertRow(db, { queue: 'orphan' });
  await insertRow(db, { queue: 'later', runAtSeconds: 60 });
  await db
    .insertInto('async_replicas')
    .values({
      ...{
        id: '00000000-0000-4000-8000-000000000001',
        host: 'h',
        pid: 1,
        version: '0.1.0',
        roles: ['processor'],
      },
      ...{ queues: ['served'], slots: 4, busy: 1, overrun: 0, running: '[]' },
      settled: JSON.stringify({
        intervalMs: 30_000,
        outcomes: { success: 5 },
        waitMs: 10,
        waited: 5,
        ranMs: 50,
        ran: 5,
      }),
    })
    .execute();
  const overview = ok(await admin.call('GET /overview'), 'Overview');
  expect(overview.unserved).toEqual(['orphan']);
  expect(overview.slots).toEqual({ replicas: 1, total: 4, busy: 1, overrun: 0 });
  expect(overview.throughput).toMatchObject({ perMinute: 10, meanWaitMs: 2, meanRunMs: 10 });
  expect(overview.totals.due).toEqual(exact(2));
  const { replicas } = ok(await admin.call('GET /replicas'), 'ReplicaList');
  expect(replicas).toMatchObject([{ host: 'h', queues: ['served'], isAlive: true, clockOffsetMs: null }]);
});

test('archived tasks come page by page, with payload, last error and an exact total', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  await registerPlainTypes(db);
  const ids = await insertDead(db, 5, { queue: 'low', payload: { n: 7 }, error: 'no such customer' });
  await insertDead(db, 3, { queue: 'other' });
  const pages = [];
  for (const page of [1, 2, 3, 4]) {
    pages.push(ok(await admin.call(`GET /queues/low/archived?page=${page}&page_size=2`), 'ArchivedPage'));
  }
  expect(pages.map(({ tasks }) => tasks.length)).toEqual([2, 2, 1, 0]);
  expect(pages.flatMap(({ tasks }) => tasks.map(({ id }) => id))).toEqual(ids.toReversed());
  expect(new Set(pages.map(({ total }) => JSON.stringify(total)))).toEqual(
    new Set([JSON.stringify(exact(5))]),
  );
  expect(pages[0]?.tasks[0]).toMatchObject({ payloadText: '{"n": 7}', lastError: 'no such customer' });
  expect(pages[0]?.pageSize).toBe(2);
});

test('a payload of a type that no worker has registered is not shown', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  const [id] = await insertDead(db, 1, { type: 'unheard_of', payload: { password: 'hunter2' } });
  const listed = await admin.call('GET /dead');
  const shown = await admin.call(`GET /tasks/${id}`);
  expect(JSON.stringify([listed.body, shown.body])).not.toContain('hunter2');
});

test('a payload that is too long for a list is on the page of its task alone', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await registerPlainTypes(db);
  const [id] = await insertDead(db, 1, { payload: { text: 'x'.repeat(20_000) } });
  const { tasks } = ok(await admin.call('GET /dead'), 'DeadPage');
  expect(tasks).toMatchObject([{ id, payloadText: null }]);
  const detail = ok(await admin.call(`GET /tasks/${id}`), 'TaskDetail');
  expect(detail.payloadText.length).toBeGreaterThan(20_000);
});

test('running an archived task puts it back, audited under the name of whoever did it', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  const [id] = await insertDead(db, 1);
  const done = ok(await admin.call(`POST /queues/default/archived/${id}/run`), 'Done');
  expect(done).toEqual({ id, status: 'replayed' });
  expect(await rowOf(db, id as never)).toMatchObject({ attempt_count: 0, exhausted: false });
  expect(await auditRows(db)).toMatchObject([{ actor: 'api:token', action: 'dead.replay', subject: id }]);
  refused(await admin.call(`POST /queues/default/archived/${id}/run`), 409, 'NOT_DEAD');
  refused(await admin.call(`DELETE /queues/default/archived/${id}`), 409, 'NOT_DEAD');
  refused(await admin.call(`POST /tasks/${id}/replay`), 409, 'NOT_DEAD');
  refused(await admin.call(`POST /tasks/${id}/drop`), 409, 'NOT_DEAD');
  expect(await auditRows(db)).toHaveLength(1);
  expect(await findRow(db, id as never)).toBeDefined();
});

test('an archived task of another queue is not touched', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  const [id] = await insertDead(db, 1, { queue: 'low' });
  refused(await admin.call(`POST /queues/default/archived/${id}/run`), 409, 'NOT_DEAD');
  refused(await admin.call(`DELETE /queues/default/archived/${id}`), 409, 'NOT_DEAD');
  ok(await admin.call(`DELETE /queues/low/archived/${id}`), 'Done');
  expect(await findRow(db, id as never)).toBeUndefined();
  expect(await auditRows(db)).toMatchObject([{ actor: 'api:token', action: 'dead.drop', subject: id }]);
});

test('a dead letter whose key a live task has is not replayed', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  const [first, second] = await insertDead(db, 2, { key: 'one' });
  ok(await admin.call(`POST /tasks/${first}/replay`), 'Done');
  refused(await admin.call(`POST /tasks/${second}/replay`), 409, 'KEY_TAKEN');
});

test('run-all replays a queue of any number of pages, and no other', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await insertDead(db, 450, { queue: 'low' });
  await insertDead(db, 2, { queue: 'other' });
  const begun = ok(await admin.call('POST /queues/low/archived/run-all'), 'Operation');
  const ended = await endOf(admin, begun);
  expect(ended).toMatchObject({ state: 'done', kind: 'replay', dryRun: false, actor: 'api:token' });
  expect(ended.counts).toMatchObject({ matched: 450, written: 450 });
  const { queues } = ok(await admin.call('GET /queues'), 'QueueList');
  expect(queues.map(({ queue, dead }) => [queue, dead.count])).toEqual([
    ['low', 0],
    ['other', 2],
  ]);
  expect((await auditRows(db)).map(({ actor }) => actor)).toEqual(['api:token', 'api:token', 'api:token']);
});

test('a dry run groups by type and error, and writes nothing', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await insertDead(db, 3, { error: 'timed out' });
  await insertDead(db, 1, { error: 'no such customer' });
  const body = { filter: { type: 'plain' }, dryRun: true };
  const ended = await endOf(admin, ok(await admin.call('POST /dead/drop', { body }), 'Operation'));
  expect(ended).toMatchObject({ state: 'done', dryRun: true, others: 0, counts: { matched: 4, written: 0 } });
  expect(ended.groups).toMatchObject([
    { type: 'plain', error: 'timed out', count: 3 },
    { error: 'no such customer', count: 1 },
  ]);
  expect(await auditRows(db)).toEqual([]);
  const filter = { error: 'TIMED', olderThan: '1m' };
  const dropped = await endOf(
    admin,
    ok(await admin.call('POST /dead/drop', { body: { filter } }), 'Operation'),
  );
  expect(dropped.counts).toMatchObject({ matched: 3, written: 3 });
  const { operations } = ok(await admin.call('GET /operations'), 'OperationList');
  expect(operations.map(({ id }) => id)).toEqual([dropped.id, ended.id]);
});

test('an operation can be cancelled: what was done stays done, the rest is left', async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin();
  await insertDead(db, 5_000);
  // Holds the first batch at its audit until the operation has been told to end.
  const begun = await db.transaction().execute(async (lock) => {
    await sql`lock table ${sql.table(`${TEST_SCHEMA}.async_audit`)} in share mode`.execute(lock);
    const operation = ok(await admin.call('POST /dead/replay', { body: { filter: {} } }), 'Operation');
    expect(operation.state).toBe('running');
    ok(await admin.call(`POST /operations/${operation.id}/cancel`), 'Operation');
    return operation;
  });
  const ended = await endOf(admin, begun);
  expect(ended.state).toBe('cancelled');
  expect(ended.counts.written).toBe(200);
  refused(await admin.call(`POST /operations/${begun.id}/cancel`), 409, 'NOT_RUNNING');
  refused(await admin.call('POST /operations/00000000-0000-4000-8000-000000000000/cancel'), 404, 'NOT_FOUND');
});

test('tasks are listed by state, in the order in which they become due', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  const waiting = await insertRows(db, 3, { queue: 'a' });
  const running = [await insertRow(db, { queue: 'b', leasedSeconds: 60, attemptCount: 1 })];
  // On its final attempt: out of attempts, and running.
  running.push(await insertRow(db, { queue: 'b', leasedSeconds: 60, attemptCount: 20 }));
  const scheduled = await insertRows(db, 2, { queue: 'a', runAtSeconds: 60 });
  const retrying = [await insertRow(db, { queue: 'b', runAtSeconds: 60, attemptCount: 3 })];
  const dead = (await insertDead(db, 2, { queue: 'c' })).toReversed();
  for (const [state, ids] of Object.entries({ waiting, running, scheduled, retrying, dead })) {
    const page = ok(await admin.call(`GET /tasks?state=${state}`), 'TaskPage');
    expect(
      page.tasks.map(({ id }) => id),
      state,
    ).toEqual(ids);
    expect(page.tasks.every((task) => task.state === state)).toBe(true);
    expect(page.next).toBeNull();
  }
  const all = ok(await admin.call('GET /tasks'), 'TaskPage');
  expect(all.tasks.map(({ id }) => Number(id))).toEqual(
    [...waiting, ...running, ...scheduled, ...retrying, ...dead].map(Number).sort((a, b) => b - a),
  );
  const ofQueue = ok(await admin.call('GET /tasks?queue=b'), 'TaskPage');
  expect(ofQueue.tasks.map(({ id }) => id)).toEqual([running[0], retrying[0], running[1]]);
  const ofType = ok(await admin.call('GET /tasks?type=absent'), 'TaskPage');
  expect(ofType).toEqual({ tasks: [], next: null });
});

test('one task has its errors, its deeds and its trace', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await registerPlainTypes(db);
  const [id] = await insertDead(db, 1, { payload: { n: 1 }, error: 'no such customer' });
  await sql`update ${sql.table(`${TEST_SCHEMA}.async_tasks`)} set headers =
    '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}' where id = ${id}`.execute(
    db,
  );
  const dead = ok(await admin.call(`GET /tasks/${id}`), 'TaskDetail');
  expect(dead).toMatchObject({
    state: 'dead',
    payloadText: '{"n": 1}',
    traceId: '0af7651916cd43dd8448eb211c80319c',
    lastError: 'no such customer',
    errors: [{ attempt: 20, outcome: 'failure', message: 'no such customer', stack: null }],
  });
  ok(await admin.call('POST /dead/replay', { body: { filter: {} } }), 'Operation');
  const replayed = ok(await admin.call(`GET /tasks/${id}`), 'TaskDetail');
  expect(replayed.state).toBe('waiting');
  expect(replayed.audit).toMatchObject([{ actor: 'api:token', action: 'dead.replay' }]);
  expect(replayed.timeline.map(({ kind }) => kind)).toContain('deed');
  refused(await admin.call('GET /tasks/999999999'), 404, 'NOT_FOUND');
  refused(await admin.call('GET /tasks/0'), 404, 'NOT_FOUND');
});

test('finished tasks that are kept are listed and shown', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await registerPlainTypes(db);
  await sql`insert into ${sql.table(`${TEST_SCHEMA}.async_completed_tasks`)}
    (id, queue, task_type, payload, payload_revision, headers, result, attempt_count, errors, created_at, started_at, keep_until)
    select n, case when n % 2 = 0 then 'even' else 'odd' end, 'plain', '{}', 1, '{}', '"fine"', 1, '[]', now(), now(),
      now() + interval '1 day' from generate_series(1, 5) n`.execute(db);
  const first = ok(await admin.call('GET /completed?queue=odd&limit=2'), 'CompletedPage');
  expect(first.tasks.map(({ id }) => id)).toEqual(['5', '3']);
  const second = ok(
    await admin.call(`GET /completed?queue=odd&limit=2&cursor=${first.next}`),
    'CompletedPage',
  );
  expect(second.tasks.map(({ id }) => id)).toEqual(['1']);
  expect(second.next).toBeNull();
  const detail = ok(await admin.call('GET /tasks/3'), 'TaskDetail');
  expect(detail).toMatchObject({ state: 'completed', resultText: '"fine"', runAt: null });
  expect(detail.timeline.at(-1)?.kind).toBe('completed');
});

test('a queue is paused, resumed and weighed, each audited once', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  const paused = ok(await admin.call('POST /queues/low/pause'), 'PauseAnswer');
  expect(paused).toMatchObject({ queue: 'low', changed: true });
  const again = ok(await admin.call('POST /queues/low/pause'), 'PauseAnswer');
  expect(again).toEqual({ ...paused, changed: false });
  expect(ok(await admin.call('POST /queues/low/resume'), 'PauseAnswer').changed).toBe(true);
  expect(ok(await admin.call('POST /queues/low/resume'), 'PauseAnswer').changed).toBe(false);
  const weighed = ok(await admin.call('PUT /queues/low/weight', { body: { weight: 5 } }), 'WeightAnswer');
  expect(weighed).toEqual({ queue: 'low', changed: true, before: null, weight: 5 });
  const unset = ok(await admin.call('PUT /queues/low/weight', { body: { weight: null } }), 'WeightAnswer');
  expect(unset).toEqual({ queue: 'low', changed: true, before: 5, weight: null });
  const { records, next } = ok(await admin.call('GET /audit?actor=api:token&limit=3'), 'AuditPage');
  expect(records.map(({ action }) => action)).toEqual(['queue.weight', 'queue.weight', 'queue.resume']);
  const rest = ok(await admin.call(`GET /audit?actor=api:token&limit=3&cursor=${next}`), 'AuditPage');
  expect(rest.records.map(({ action }) => action)).toEqual(['queue.pause']);
  expect(await auditRows(db)).toHaveLength(4);
});

test('cron entries are listed with their next ticks, and run now', async ({ db, openAdmin }) => {
  const cron = cronOf([{ task: 'plain', name: 'nightly/../sweep', schedule: '0 3 * * *' }]);
  const admin = await openAdmin({ cron });
  const list = ok(await admin.call('GET /cron'), 'CronList');
  expect(list).toMatchObject({
    hasList: true,
    entries: [{ name: 'nightly/../sweep', isDefined: true, last: null }],
  });
  expect(list.entries[0]?.next).toHaveLength(2);
  const { id } = ok(await admin.call(`POST /cron/${pathSegment('nightly/../sweep')}/run`), 'Enqueued');
  expect(await findRow(db, id as never)).toBeDefined();
  expect(await auditRows(db)).toMatchObject([
    { actor: 'api:token', action: 'cron.run', subject: 'nightly/../sweep' },
  ]);
  refused(await admin.call('POST /cron/absent/run'), 404, 'NOT_FOUND');
  const without = await openAdmin();
  expect(ok(await without.call('GET /cron'), 'CronList').hasList).toBe(false);
  refused(await without.call('POST /cron/absent/run'), 409, 'NO_CRON_LIST');
});

test('a name with any signs in it is one name, in a path as in a row', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  const names = [
    'a/b',
    '..',
    '.',
    '~..',
    '%2e%2e',
    'a%2Fb',
    "o'clock",
    '"',
    'ünïcødé 🚀',
    'a b',
    'a+b',
    '?#;',
    '<b>',
    '‮x',
  ];
  for (const queue of names) await insertDead(db, 1, { queue });
  for (const queue of names) {
    const at = `/queues/${pathSegment(queue)}`;
    const { tasks, ...page } = ok(await admin.call(`GET ${at}/archived`), 'ArchivedPage');
    expect([page.queue, tasks.length]).toEqual([queue, 1]);
    expect(ok(await admin.call(`GET ${at}`), 'QueueDetail').queue).toBe(queue);
    const listed = ok(
      await admin.call(`GET /tasks?state=dead&queue=${encodeURIComponent(queue)}`),
      'TaskPage',
    );
    expect(listed.tasks).toMatchObject([{ queue }]);
    ok(await admin.call(`POST ${at}/archived/${tasks[0]?.id}/run`), 'Done');
    ok(await admin.call(`POST ${at}/pause`), 'PauseAnswer');
  }
  const paused = (await auditRows(db)).filter(({ action }) => action === 'queue.pause');
  expect(paused.map(({ subject }) => subject)).toEqual(names);
});

test('what does not fit the contract is refused before anything is done', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await insertDead(db, 1);
  const bad = [
    'GET /queues/default/archived?page_size=1&page_size=2',
    'GET /queues/default/archived?unknown=1',
    'GET /tasks?state=asleep',
    'GET /tasks?cursor=AAAA',
    `GET /tasks?cursor=${Buffer.from('{"stretch":"due"}').toString('base64url')}`,
    'GET /tasks/not-an-id',
    'GET /dead?older_than=soon',
    'GET /queues/%ff',
    `GET /queues/${'x'.repeat(201)}`,
    'GET /queues/a%00b/archived',
    'POST /queues/a%0ab/pause',
  ];
  for (const place of bad) refused(await admin.call(place), 400, 'REQUEST_INVALID');
  const bodies = [
    '',
    '{',
    '[]',
    '{"filter":{},"more":1}',
    '{"filter":{"kind":"x"}}',
    '{"filter":{},"dryRun":"no"}',
  ];
  for (const body of bodies) refused(await admin.call('POST /dead/drop', { body }), 400, 'REQUEST_INVALID');
  refused(await admin.call('POST /queues/default/pause', { body: { by: 'me' } }), 400, 'REQUEST_INVALID');
  const large = { filter: { error: 'x'.repeat(70_000) } };
  refused(await admin.call('POST /dead/drop', { body: large }), 413, 'BODY_TOO_LARGE');
  const form = { body: 'filter=', headers: { 'content-type': 'application/x-www-form-urlencoded' } };
  refused(await admin.call('POST /dead/drop', form), 415, 'MEDIA_TYPE');
  expect(await auditRows(db)).toEqual([]);
});

test('a refusal does not repeat what was sent', async ({ openAdmin }) => {
  const admin = await openAdmin();
  const hostile = encodeURIComponent('<img src=x onerror=alert(1)>');
  for (const place of [
    `GET /${hostile}`,
    `GET /tasks?${hostile}=1`,
    `GET /tasks?state=${hostile}`,
    `GET /tasks/${hostile}`,
  ]) {
    const answer = await admin.call(place);
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(JSON.stringify(answer.body)).not.toContain('onerror');
  }
});

test('a method that a path does not have is refused, and those that it has are named', async ({
  openAdmin,
}) => {
  const admin = await openAdmin();
  const answer = await admin.call('DELETE /queues/default/pause');
  refused(answer, 405, 'METHOD_NOT_ALLOWED');
  expect(answer.headers.get('allow')).toBe('POST');
  refused(await admin.call('POST /overview'), 405, 'METHOD_NOT_ALLOWED');
  refused(await admin.call('GET /nowhere'), 404, 'NOT_FOUND');
});

test('a token that may read may not act', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  const [id] = await insertDead(db, 1);
  ok(await admin.call('GET /overview', { token: READ_TOKEN }), 'Overview');
  expect(ok(await admin.call('GET /session', { token: READ_TOKEN }), 'Session').role).toBe('read');
  expect(ok(await admin.call('GET /session', { token: TOKEN }), 'Session').role).toBe('act');
  const acts = [
    `POST /tasks/${id}/replay`,
    `POST /tasks/${id}/drop`,
    `POST /queues/default/archived/${id}/run`,
    'POST /queues/default/archived/run-all',
    `DELETE /queues/default/archived/${id}`,
    'POST /queues/default/pause',
    'POST /queues/default/resume',
    'PUT /queues/default/weight',
    'POST /dead/replay',
    'POST /dead/drop',
    'POST /cron/any/run',
    'POST /operations/00000000-0000-4000-8000-000000000000/cancel',
  ];
  for (const place of acts) refused(await admin.call(place, { token: READ_TOKEN }), 403, 'FORBIDDEN');
  expect(await auditRows(db)).toEqual([]);
});

test('what the database says is not passed on', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await sql`drop table ${sql.table(`${TEST_SCHEMA}.async_replicas`)}`.execute(db);
  const problem = refused(await admin.call('GET /replicas'), 500, 'INTERNAL');
  expect(JSON.stringify(problem)).not.toContain('async_replicas');
});

async function endOf(admin: TestAdmin, begun: Wire<'Operation'>): Promise<Wire<'Operation'>> {
  return waitFor(async () => {
    const operation = ok(await admin.call(`GET /operations/${begun.id}`), 'Operation');
    return operation.state === 'running' ? undefined : operation;
  });
}
