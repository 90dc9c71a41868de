import { Validator } from '@seriousme/openapi-schema-validator';
import { z } from 'zod';
import { adminAction } from '../../src/admin/actions.ts';
import { API_PATH } from '../../src/admin/contracts.ts';
import { AdminProblem } from '../../src/admin/problems.ts';
import { ROUTES } from '../../src/admin/routes.ts';
import { createAdmin } from '../../src/admin/server.ts';
import { TaskqError } from '../../src/index.ts';
import { expect, optionsFor, READ_TOKEN, test } from '../support/admin.ts';
import { auditRows } from '../support/dead.ts';
import { testTasks } from '../support/tasks.ts';

const sweep = adminAction({
  method: 'POST',
  path: '/s3-orphan-sweep',
  name: 'sweepOrphans',
  summary: 'Sweep one prefix now',
  query: z.strictObject({ prefix: z.string().min(1) }),
  answer: z.strictObject({ id: z.string() }),
  async run({ operator }, { query: { prefix } }) {
    if (prefix === 'curated/') throw new AdminProblem('REQUEST_INVALID', 'a curated prefix is not swept');
    if (prefix === 'broken/') throw new TaskqError('PAYLOAD_INVALID', 'it does not fit');
    if (prefix === 'bug/') throw new Error('secret of the application');
    const { id } = await operator.enqueue(testTasks, { type: 'plain', payload: {} });
    return { id };
  },
});

test('the document is valid OpenAPI 3.1, and has every route', async ({ openAdmin }) => {
  const admin = await openAdmin({ basePath: '/taskq', actions: [sweep] });
  const { status, body } = await admin.call('GET /openapi.json');
  expect(status).toBe(200);
  const checked = await new Validator().validate(structuredClone(body));
  expect([checked.valid, checked.errors]).toEqual([true, undefined]);
  expect(body.openapi).toBe('3.1.0');
  expect(body.servers).toEqual([{ url: `/taskq${API_PATH}` }]);
  for (const { method, path, name } of [...ROUTES, sweep]) {
    const operation = body.paths[path.replaceAll(/:(\w+)/g, '{$1}')]?.[method.toLowerCase()];
    expect([name, operation?.operationId]).toEqual([name, name]);
    const named = (operation.parameters ?? []).filter((each: { in: string }) => each.in === 'path');
    expect(named.map((each: { name: string }) => `:${each.name}`)).toEqual(path.match(/:\w+/g) ?? []);
  }
});

test('every reference of the document leads somewhere', async ({ openAdmin }) => {
  const admin = await openAdmin();
  const { body } = await admin.call('GET /openapi.json');
  const references = [...JSON.stringify(body).matchAll(/"\$ref":"([^"]*)"/g)].map(([, to]) => String(to));
  expect(references.length).toBeGreaterThan(50);
  for (const to of references) {
    expect(to).toMatch(/^#\/components\/schemas\/\w+$/);
    expect(body.components.schemas).toHaveProperty([to.split('/').at(-1) ?? '']);
  }
});

test("an application's own route stands among the others, behind the same gate", async ({
  db,
  openAdmin,
}) => {
  const admin = await openAdmin({ actions: [sweep] });
  const place = 'POST /s3-orphan-sweep?prefix=orgs/1/';
  expect((await admin.call(place, { token: null })).status).toBe(401);
  expect((await admin.call(place, { token: READ_TOKEN })).status).toBe(403);
  const answer = await admin.call(place);
  expect([answer.status, Object.keys(answer.body)]).toEqual([200, ['id']]);
  expect(await auditRows(db)).toMatchObject([
    { actor: 'api:token', action: 'task.enqueue', subject: answer.body.id },
  ]);
  const refusals = { 'curated/': 400, 'broken/': 400, 'bug/': 500, '': 400 };
  for (const [prefix, status] of Object.entries(refusals)) {
    const refused = await admin.call(`POST /s3-orphan-sweep?prefix=${prefix}`);
    expect([prefix, refused.status]).toEqual([prefix, status]);
    expect(JSON.stringify(refused.body)).not.toContain('secret of the application');
  }
  expect((await admin.call(`${place}&more=1`)).status).toBe(400);
  expect((await admin.call('GET /s3-orphan-sweep?prefix=x')).status).toBe(405);
});

test('an action that stands in the place of another route is refused at the start', async ({ database }) => {
  for (const path of ['/queues/:name/pause', '/login', 'no-slash', '/a b', '/..%2f']) {
    const options = optionsFor(database, { actions: [{ ...sweep, path }] });
    await expect(createAdmin(options)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  }
  const twice = optionsFor(database, { actions: [sweep, { ...sweep, path: '/other' }] });
  await expect(createAdmin(twice)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
});
