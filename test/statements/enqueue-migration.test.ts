import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { migrations } from '../../generated/migrations.ts';
import { migrateDown, migrateUp } from '../../src/statements/migrate.ts';
import { session } from '../support/migrate-process.ts';
import { expect, type TestDatabase, test } from '../support/test.ts';

// The function enqueue is replaced by one with more arguments: whoever could call it before can afterwards, and nobody
// else; forth and back.

const SCHEMA = 'queue';
const BEFORE = migrations.filter(({ name }) => name < '0007');
const upToBefore = { schema: SCHEMA, migrations: BEFORE };
const upTo0007 = { schema: SCHEMA, migrations: migrations.filter(({ name }) => name < '0008') };

/** Roles belong to the server: with names of their own, and gone after the test. */
async function rolesIn(database: TestDatabase, names: readonly string[]) {
  const suffix = randomBytes(4).toString('hex');
  const roles = Object.fromEntries(names.map((name) => [name, `"taskq test ${name} ${suffix}"`]));
  const administrator = await session(database.connection);
  for (const role of Object.values(roles)) {
    await administrator.query(
      `create role ${role} nologin; grant all on database ${database.name} to ${role}`,
    );
  }
  return {
    administrator,
    roles: roles as Readonly<Record<string, string>>,
    // While the database is still there: a role cannot go before what it was granted.
    async [Symbol.asyncDispose]() {
      for (const role of Object.values(roles)) {
        await administrator.query(`drop owned by ${role} cascade; drop role ${role}`);
      }
      await administrator.end();
    },
  };
}

interface Access {
  readonly signatures: number;
  readonly owner: string;
  readonly grants: readonly string[];
}

async function accessOf(client: pg.Client): Promise<Access> {
  const { rows } = await client.query(
    `select count(*) over ()::int as signatures, proowner::regrole::text as owner,
            array(select case grantee when 0 then 'PUBLIC' else grantee::regrole::text end
                    || case when is_grantable then ' grants' else '' end
                  from aclexplode(coalesce(proacl, acldefault('f', proowner)))
                  where grantee <> proowner order by 1) as grants
     from pg_proc where pronamespace = '${SCHEMA}'::regnamespace and proname = 'enqueue'`,
  );
  return rows[0];
}

test('a role that might call enqueue before the migration may afterwards, and after it is undone', async ({
  database,
}) => {
  await using there = await rolesIn(database, ['caller', 'granter', 'denied']);
  const { administrator, roles } = there;
  await migrateUp(database.connection, upToBefore);
  await administrator.query(`grant usage on schema ${SCHEMA} to ${Object.values(roles).join(', ')}`);
  await administrator.query(`grant execute on function ${SCHEMA}.enqueue to ${roles['caller']}`);
  await administrator.query(
    `grant execute on function ${SCHEMA}.enqueue to ${roles['granter']} with grant option`,
  );
  // Granted on every new function, and so on the next enqueue: not what was said of this one.
  await administrator.query(
    `alter default privileges in schema ${SCHEMA} grant execute on functions to ${roles['denied']}, PUBLIC`,
  );
  const before = await accessOf(administrator);
  expect(before.grants).toEqual([roles['caller'], `${roles['granter']} grants`]);

  await migrateUp(database.connection, upTo0007);
  expect(await accessOf(administrator)).toEqual(before);
  await using caller = await session({
    ...database.connection,
    options: `-c role=${escaped(roles['caller'])}`,
  });
  const call = `select status from ${SCHEMA}.enqueue('plain', '{}', timeout => '10s')`;
  expect((await caller.query(call)).rows).toEqual([{ status: 'enqueued' }]);
  await using denied = await session({
    ...database.connection,
    options: `-c role=${escaped(roles['denied'])}`,
  });
  await expect(denied.query(call)).rejects.toMatchObject({ code: '42501' });

  await migrateDown(database.connection, { ...upTo0007, steps: 1 });
  expect(await accessOf(administrator)).toEqual(before);
  await expect(caller.query(call)).rejects.toMatchObject({ code: '42883' });
  const { rows } = await caller.query(`select status from ${SCHEMA}.enqueue('plain', '{}', queue => 'low')`);
  expect(rows).toEqual([{ status: 'enqueued' }]);
});

/** As a server option takes it. */
const escaped = (role: string | undefined): string => String(role).replaceAll('"', '').replaceAll(' ', '\\ ');

test('who gave it to everybody finds it so', async ({ database }) => {
  await using client = await session(database.connection);
  await migrateUp(database.connection, upToBefore);
  await client.query(`grant execute on function ${SCHEMA}.enqueue to PUBLIC`);
  await migrateUp(database.connection, upTo0007);
  expect(await accessOf(client)).toMatchObject({ signatures: 1, grants: ['PUBLIC'] });
});

test('a function that nobody but its owner may call stays so', async ({ database }) => {
  await using client = await session(database.connection);
  await migrateUp(database.connection, upTo0007);
  expect(await accessOf(client)).toMatchObject({ signatures: 1, grants: [] });
});

test('the owner, whose rights the function runs with, stays when another role migrates', async ({
  database,
}) => {
  await using there = await rolesIn(database, ['owner']);
  const { administrator, roles } = there;
  await administrator.query(`create schema ${SCHEMA} authorization ${roles['owner']}`);
  await migrateUp({ ...database.connection, options: `-c role=${escaped(roles['owner'])}` }, upToBefore);
  const before = await accessOf(administrator);
  expect(before.owner).toBe(roles['owner']);

  await migrateUp(database.connection, upTo0007);
  expect(await accessOf(administrator)).toEqual(before);
  await migrateDown(database.connection, { ...upTo0007, steps: 1 });
  expect(await accessOf(administrator)).toEqual(before);
});

test('a trigger that calls enqueue by name calls the new one', async ({ database }) => {
  await using client = await session(database.connection);
  await migrateUp(database.connection, upToBefore);
  await client.query(`
    create table public.stacks (id int primary key);
    create function public.reconcile() returns trigger language plpgsql as $$ begin
      perform ${SCHEMA}.enqueue('plain', jsonb_build_object('n', new.id)); return new;
    end $$;
    create trigger reconcile after insert on public.stacks for each row execute function public.reconcile();
    insert into public.stacks values (1)`);

  await migrateUp(database.connection, upTo0007);
  await client.query('insert into public.stacks values (2)');
  await migrateDown(database.connection, { ...upTo0007, steps: 1 });
  await client.query('insert into public.stacks values (3)');

  const { rows } = await client.query(`select payload ->> 'n' as n from ${SCHEMA}.async_tasks order by id`);
  expect(rows).toEqual([{ n: '1' }, { n: '2' }, { n: '3' }]);
});

test('what depends on the old function stops the migration, which names it', async ({ database }) => {
  await using client = await session(database.connection);
  await migrateUp(database.connection, upToBefore);
  await client.query(`create view public.enqueued as select id from ${SCHEMA}.enqueue('plain', '{}')`);

  await expect(migrateUp(database.connection, upTo0007)).rejects.toMatchObject({
    code: 'MIGRATION_FAILED',
    message: expect.stringMatching(/^0007_enqueue_limits\.sql.*other objects depend on it.*Rolled back/s),
    cause: { detail: expect.stringContaining('view') },
  });
  expect(await accessOf(client)).toMatchObject({ signatures: 1 });
});
