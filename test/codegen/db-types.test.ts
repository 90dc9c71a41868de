import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { renderDatabaseTypes } from '../../src/codegen/db-types.ts';
import { expect, test } from '../support/test.ts';
import { REPOSITORY } from './project.ts';

test('the row types are those of the migrations, and the scratch schema is gone again', async ({
  database,
  db,
}) => {
  const committed = await readFile(path.join(REPOSITORY, 'generated/db.ts'), 'utf8');
  const schemas = async () => (await db.introspection.getSchemas()).map(({ name }) => name);
  const before = await schemas();
  expect(await renderDatabaseTypes({ scratchDatabaseUrl: database.url })).toBe(committed);
  expect(await schemas()).toEqual(before);
});

test('the bookkeeping of migrations is no table for users', async ({ database }) => {
  const text = await renderDatabaseTypes({ scratchDatabaseUrl: database.url });
  expect(text.slice(text.indexOf('export interface DB')).trim()).toMatch(
    /^export interface DB \{\n( {2}async_\w+: Async\w+;\n)+\}$/,
  );
});

test('a migration that fails leaves no scratch schema behind and says which it was', async ({
  database,
  db,
}) => {
  const migrations = [{ name: '0001_broken', up: 'CREATE TABLE broken (', down: 'DROP TABLE broken' }];
  const failed = renderDatabaseTypes({ scratchDatabaseUrl: database.url, migrations });
  await expect(failed).rejects.toMatchObject({
    code: 'MIGRATION_FAILED',
    message: expect.stringContaining('0001_broken'),
  });
  const schemas = (await db.introspection.getSchemas()).map(({ name }) => name);
  expect(schemas.filter((name) => name.startsWith('taskq_codegen'))).toEqual([]);
});

test('a database that cannot be reached is an error of ours', async () => {
  const failed = renderDatabaseTypes({ scratchDatabaseUrl: 'postgres://nobody@127.0.0.1:1/none' });
  await expect(failed).rejects.toMatchObject({
    name: 'TaskqError',
    message: expect.stringContaining('cannot connect'),
  });
});
