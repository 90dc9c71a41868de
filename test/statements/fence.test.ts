import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect } from 'vitest';
import { isUnleased } from '../../src/statements/predicates.ts';
import { SETTLE_STATEMENTS } from '../../src/statements/settle.ts';
import { parameter, type Statement, statement, type Values } from '../../src/statements/statement.ts';
import { claimRow, findRow, insertRow, rowOf, writeLaneOf } from '../support/rows.ts';
import { TEST_SCHEMA, test } from '../support/test.ts';

// Whoever adds a statement that writes about a held row adds it to SETTLE_STATEMENTS, and it is looked at here:
// in its text, and with a wrong token against a row that is really held.

describe('every statement that writes about a held row carries the fence', () => {
  for (const [name, settle] of Object.entries(SETTLE_STATEMENTS)) {
    test(`${name}: its text matches the row by id and by lease token`, () => {
      expect(missingFence(settle)).toBeUndefined();
    });

    test(`${name}: with another token than the row's it writes nothing`, async ({ db }) => {
      const task = await claimRow(db, await insertRow(db, { attemptCount: 19 }));
      const lane = writeLaneOf(db);
      const before = await rowOf(db, task.id);

      expect(await settle.run(lane, valuesOf(task.id, crypto.randomUUID()))).toEqual([]);
      expect(await rowOf(db, task.id)).toEqual(before);

      expect(await settle.run(lane, valuesOf(task.id, task.lease.token))).toHaveLength(1);
      expect(await findRow(db, task.id)).not.toEqual(before);
    });
  }
});

describe('the check of the fence finds a statement without it', () => {
  const id = parameter<string>('id');
  const token = parameter<string>('token');
  const unfenced: Readonly<Record<string, Statement<{ id: string }>>> = {
    'a delete by id alone': statement((db) =>
      db.deleteFrom('async_tasks').where('async_tasks.id', '=', id).returning('id'),
    ),
    'an update that only sets the token': statement((db) =>
      db
        .updateTable('async_tasks')
        .set({ lease_token: token })
        .where('async_tasks.id', '=', id)
        .returning('id'),
    ),
    'a token that another condition makes optional': statement((db) =>
      db
        .deleteFrom('async_tasks')
        .where('async_tasks.id', '=', id)
        .where((t) => t.or([t('async_tasks.lease_token', '=', token), isUnleased(t)]))
        .returning('id'),
    ),
    'a token without the id': statement((db) =>
      db.deleteFrom('async_tasks').where('async_tasks.lease_token', '=', token).returning('id'),
    ),
    'a token that is not the lease given': statement((db) =>
      db
        .deleteFrom('async_tasks')
        .where('async_tasks.id', '=', id)
        .where('async_tasks.lease_token', '=', parameter<string>('id'))
        .returning('id'),
    ),
  };
  for (const [title, settle] of Object.entries(unfenced)) {
    test(title, () => {
      expect(missingFence(settle)).toBeTypeOf('string');
    });
  }
});

test('no other file of the product writes about rows that a worker may hold', async () => {
  // claim makes leases; prune, dead and dead-bulk match by `isDead`, which no live lease satisfies.
  const writers = ['claim.ts', 'dead-bulk.ts', 'dead.ts', 'prune.ts', 'settle.ts'];
  const source = fileURLToPath(new URL('../../src', import.meta.url));
  const files = await readdir(source, { recursive: true });
  const found: string[] = [];
  // The doctor only prints SQL, for an owner to run.
  for (const file of files.filter((name) => name.endsWith('.ts') && !name.startsWith('doctor'))) {
    const text = await readFile(path.join(source, file), 'utf8');
    if (/(updateTable|deleteFrom)\('async_tasks'\)/.test(text)) found.push(file);
    if (/\b(update|delete from)\s+(\S+\.)?"?async_tasks\b/i.test(text)) found.push(file);
  }

  expect(found.toSorted()).toEqual(writers.map((name) => path.join('statements', name)));

  const settle = await readFile(path.join(source, 'statements', 'settle.ts'), 'utf8');
  const made = [...settle.matchAll(/const (\w+)Statement = statement\(/g)].map(([, name]) => name);
  // They match an unleased row only, so there is no token that they could carry.
  expect(made.filter((name) => !name?.startsWith('dequeueUnleased')).toSorted()).toEqual(
    Object.keys(SETTLE_STATEMENTS).toSorted(),
  );
});

/** What of the fence is missing in the statement's text; undefined when nothing is. */
function missingFence(settle: Statement<{ id: string }>): string | undefined {
  const { sql, parameters } = settle.compile(TEST_SCHEMA);
  const where = / where (?<condition>.*?)(?: returning .*)?$/.exec(sql)?.groups?.['condition'] ?? '';
  if (/\bor\b/i.test(where)) return `a condition that may hold without the token: ${where}`;
  for (const [column, value] of [
    ['id', 'id'],
    ['lease_token', 'token'],
  ] as const) {
    const match = new RegExp(`"async_tasks"\\."${column}" = (?:\\$(?<place>\\d+)|"held"\\."${value}")`).exec(
      where,
    );
    if (match === null) return `no condition on ${column}: ${where}`;
    const place = Number(match.groups?.['place'] ?? placeInHeld(sql, value));
    const name = (parameters[place - 1] as { name?: string } | undefined)?.name ?? '';
    if (name !== value && name !== `${value}s`)
      return `${column} is compared with '${name}', not with '${value}'`;
  }
  return undefined;
}

/** `held` is the list of leases, given as arrays. */
function placeInHeld(sql: string, column: 'id' | 'token'): number {
  const match =
    /unnest\(\$(?<id>\d+)::bigint\[\], \$(?<token>\d+)::uuid\[\](?:, \$\d+::text\[\])?\) as held\(id, token(?:, result)?\)/.exec(
      sql,
    );
  return Number(match?.groups?.[column] ?? Number.NaN);
}

/** A value for every parameter of the family; each statement takes its own. */
function valuesOf(id: string, token: string): Values {
  return {
    id,
    token,
    ids: [id],
    tokens: [token],
    results: ['{"of":"the test"}'],
    result: '{"of":"the test"}',
    message: 'of the test',
    entry: '{"attempt":20}',
    backoffMs: 15_000,
    cursor: '{"page":1}',
    progress: null,
    leaseMs: 10_000,
    limitMs: 20_000,
  };
}
