import { fileURLToPath } from 'node:url';
import { sql } from 'kysely';
import { renderShape } from '../../src/doctor/schema.ts';
import { readShape } from '../../src/statements/doctor-schema.ts';
import { readLaneOf } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { expect, test } from '../support/test.ts';

const FILE = fileURLToPath(new URL('../../src/doctor/expected-shape.ts', import.meta.url));
const HEADER =
  '// What the migrations make, a line for each object: written by `npx vitest run test/doctor/expected-shape.test.ts -u`.\n';

test('the doctor expects what the migrations make, on every version of PostgreSQL', async ({ db }) => {
  const { rows } = await sql<{ name: string }>`
    select c.relname::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = ${TEST_SCHEMA} and c.relkind = 'r' and c.relname not like 'taskq\\_migrations%'`.execute(
    db,
  );
  const shape = await readShape(
    readLaneOf(db),
    rows.map(({ name }) => name),
  );
  const text = `${HEADER}export const EXPECTED_SHAPE = \`\n${renderShape(shape)}\n\`;\n`;
  await expect(text, 'run it with -u when a migration was added').toMatchFileSnapshot(FILE);
});
