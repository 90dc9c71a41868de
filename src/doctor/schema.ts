import { migrations } from '../../generated/migrations.ts';
import { TaskqError } from '../domain/errors.ts';
import { DOCTOR_SMALL_TABLE_PAGES } from '../domain/limits.ts';
import { quoteIdentifier } from '../domain/schema-name.ts';
import { explainHot, HOT_STATEMENTS, type HotPlan, readTaskPages } from '../statements/doctor-plans.ts';
import { readInvalidIndexes, readRights, readShape, type SchemaShape } from '../statements/doctor-schema.ts';
import { readServer, readSettings } from '../statements/doctor-server.ts';
import type { OwnLane } from '../statements/lanes.ts';
import {
  checkPrivileges,
  migrateCommand,
  readMigrationStatus,
  readSchemaFacts,
} from '../statements/schema-check.ts';
import { type Check, ok, type Verdict, verdict } from './check.ts';
import { EXPECTED_SHAPE } from './expected-shape.ts';
import { counted, named } from './phrases.ts';

// Whether what the migrations made is there, unchanged, reachable for the role, and used.

const migrationLevel: Check = {
  id: 'migrations',
  group: 'schema',
  describes:
    'The migrations recorded against those of this version. Problem: some are missing, or a breaking one is newer. Warning: newer ones.',
  async examine({ onPrimary, schema }) {
    const { applied, pending, ahead } = await onPrimary((lane) => readMigrationStatus(lane.executor, schema));
    if (pending.length > 0) {
      const lacks = applied.length === 0 ? 'there are no tables of taskq yet' : `missing: ${named(pending)}`;
      return verdict('problem', `schema ${schema}: ${lacks}`, migrateCommand(schema));
    }
    const breaking = ahead.filter((name) => /^\d+_breaking_/.test(name));
    if (breaking.length > 0)
      return verdict(
        'problem',
        `schema ${schema} has ${named(breaking)}, which this version cannot work with`,
        'install the newer version of taskq',
      );
    if (ahead.length > 0)
      return verdict(
        'warning',
        `schema ${schema} has ${named(ahead)}, which this version does not know: fine while a newer one is rolled out`,
        'install the newer version of taskq when the rollout is over',
      );
    return ok(`${counted(applied.length, 'migration')} applied, none missing`);
  },
};

const privileges: Check = {
  id: 'privileges',
  group: 'schema',
  describes:
    'The role of `DATABASE_URL` may do all that a worker does, row-level security included. Problem: rights are missing. Unknown: it may only read, so it is not the workers’.',
  async examine({ onPrimary, schema }) {
    return onPrimary(async (lane) => {
      const { role, mayUseSchema, schemaExists } = await readSchemaFacts(lane.executor, schema);
      const [place, grantee] = [quoteIdentifier(schema), quoteIdentifier(role)];
      if (!schemaExists) return verdict('unknown', `there is no schema ${schema}`, migrateCommand(schema));
      const usage = `GRANT USAGE ON SCHEMA ${place} TO ${grantee};`;
      if (!mayUseSchema) return verdict('problem', `role ${role} lacks USAGE on schema ${place}`, usage);
      const rights = await readRights(lane);
      const missing = rights.filter(({ isHeld }) => !isHeld);
      if (missing.length === 0) return rowsSeen(lane, schema, role, rights.length);
      const lacks = named(missing.map(({ right, object }) => `${right} on ${object}`));
      if (
        missing.every(({ right }) => right !== 'SELECT') &&
        !rights.some((of) => of.isHeld && of.right !== 'SELECT')
      )
        return verdict(
          'unknown',
          `role ${role} may only read: what the role of the workers may do is not visible from here`,
          'run this with the DATABASE_URL of the workers',
        );
      const grants = missing.map(({ right, object }) => `GRANT ${right} ON ${object} TO ${grantee};`);
      return verdict('problem', `role ${role} lacks ${lacks}`, ...grants);
    });
  },
};

async function rowsSeen(lane: OwnLane, schema: string, role: string, rights: number): Promise<Verdict> {
  try {
    await checkPrivileges(lane.executor, schema);
  } catch (error) {
    if (!(error instanceof TaskqError) || error.code !== 'PRIVILEGE_MISSING') throw error;
    const [found = error.message, remedy] = error.message.split('. Run as its owner: ');
    return verdict('problem', found, ...(remedy === undefined ? [] : [remedy]));
  }
  return ok(`role ${role} has the ${rights} rights of a worker`);
}

const schemaObjects: Check = {
  id: 'schema-objects',
  group: 'schema',
  describes:
    'Tables, columns, constraints, indexes (valid ones), storage and autovacuum settings and the function are as the migrations made them. Problem: missing or changed. Warning: settings differ, or there is something more: an index or a trigger.',
  async examine({ onPrimary, schema }) {
    const { shape, invalid, pending, ahead } = await onPrimary(async (lane) => ({
      ...(await readMigrationStatus(lane.executor, schema)),
      shape: await readShape(lane, EXPECTED_TABLES),
      invalid: await readInvalidIndexes(lane, EXPECTED_TABLES),
    }));
    if (pending.length > 0)
      return verdict('unknown', 'migrations are missing, so objects are too', migrateCommand(schema));
    return judgeShape({ schema, shape, invalid, isAhead: ahead.length > 0 });
  },
};

/** Name → definition, of everything that the migrations make. */
export const EXPECTED: SchemaShape = parseShape(EXPECTED_SHAPE);
const EXPECTED_TABLES = [...EXPECTED.keys()].flatMap((name) => /^options (.*)$/.exec(name)?.[1] ?? []);

/** Reads what `renderShape` wrote. */
function parseShape(text: string): SchemaShape {
  return new Map(
    text
      .split('\n')
      .filter((line) => line !== '')
      .map((line): [string, string] => {
        const [, name = '', definition = ''] = /^(.*?) := ?(.*)$/.exec(line) ?? [];
        return [name, definition];
      }),
  );
}

/** A line for each, sorted: the text of `expected-shape.ts`. */
export function renderShape(shape: SchemaShape): string {
  return [...shape]
    .map(([name, definition]) => `${name} := ${definition}`.trimEnd())
    .sort()
    .join('\n');
}

export function judgeShape({
  schema,
  shape,
  invalid,
  isAhead,
}: {
  schema: string;
  shape: SchemaShape;
  invalid: readonly string[];
  isAhead: boolean;
}): Verdict {
  const place = quoteIdentifier(schema);
  const missing = [...EXPECTED].filter(([name]) => !shape.has(name));
  const lostTables = missing.flatMap(([name]) => /^options (.*)$/.exec(name)?.[1] ?? []);
  const wrong = [
    ...lostTables.map((table) => [`table ${table} is missing`, restored(table)] as const),
    ...missing
      .filter(([name]) => !lostTables.some((table) => isOf(name, table)))
      .map(([name, definition]) => [`${name} is missing`, making(name, definition, place)] as const),
    ...invalid.map(
      (name) => [`index ${name} is invalid`, `REINDEX INDEX CONCURRENTLY ${place}.${name};`] as const,
    ),
    // A newer version may have changed what this one knows.
    ...(isAhead ? [] : changed(shape, false).map(([name, is, was]) => alteration(name, is, was, place))),
  ];
  const different = isAhead
    ? []
    : [
        ...changed(shape, true).map(([name, is, was]) => alteration(name, is, was, place)),
        ...[...shape]
          .filter(([name]) => !EXPECTED.has(name))
          .map(([name]) => [`${name} is none of taskq's`, addition(name, place)] as const),
      ];
  const all = [...wrong, ...different];
  if (all.length === 0) return ok(`${counted(EXPECTED.size, 'object')} as the migrations made them`);
  return verdict(
    wrong.length > 0 ? 'problem' : 'warning',
    named(all.map(([found]) => found)),
    ...all.map(([, remedy]) => remedy),
  );
}

/** Whether a line is of the table, or can only be made again with it. */
function isOf(name: string, table: string): boolean {
  if (name.startsWith('index ')) return EXPECTED.get(name)?.includes(` ON ${table} `) === true;
  return name === `options ${table}` || name.includes(` ${table}.`);
}

function changed(shape: SchemaShape, areOptions: boolean): [name: string, is: string, was: string][] {
  return [...EXPECTED].flatMap(([name, was]): [string, string, string][] => {
    const is = shape.get(name);
    if (is === undefined || is === was || name.startsWith('options ') !== areOptions) return [];
    return [[name, is, was]];
  });
}

function alteration(name: string, is: string, was: string, place: string): readonly [string, string] {
  const [kind, object = ''] = name.split(/ (.*)/s);
  if (kind === 'options') return [`settings of ${object} are '${is}'`, resetting(object, is, was, place)];
  if (kind === 'index')
    return [
      `index ${object} is another than taskq's`,
      `DROP INDEX CONCURRENTLY ${place}.${object}; ${making(name, was, place)}`,
    ];
  if (kind === 'function') return [`${name} was changed`, making(name, was, place)];
  return [`${name} is '${is}'`, `a migration made it: ${was}; change it back with ALTER TABLE`];
}

function resetting(table: string, is: string, was: string, place: string): string {
  const keys = (text: string) => text.split(', ').flatMap((option) => option.split('=')[0] || []);
  const surplus = keys(is).filter((key) => !keys(was).includes(key));
  return [
    ...(surplus.length === 0 ? [] : [`ALTER TABLE ${place}.${table} RESET (${surplus.join(', ')});`]),
    ...(was === '' ? [] : [`ALTER TABLE ${place}.${table} SET (${was});`]),
  ].join(' ');
}

/** DDL that makes again what a line describes. */
function making(name: string, definition: string, place: string): string {
  const [kind, object = ''] = name.split(/ (.*)/s);
  const [table = '', part = ''] = object.split(/\.(.*)/s);
  if (kind === 'index')
    return `${definition.replace(/^CREATE( UNIQUE)? INDEX /, '$&CONCURRENTLY ').replace(' ON ', ` ON ${place}.`)};`;
  if (kind === 'column')
    return `ALTER TABLE ${place}.${table} ADD COLUMN ${quoteIdentifier(part)} ${definition};`;
  if (kind === 'constraint') return `ALTER TABLE ${place}.${table} ADD CONSTRAINT ${part} ${definition};`;
  return `run the CREATE FUNCTION of ${fileWith('CREATE FUNCTION enqueue(')} again, as CREATE OR REPLACE, after: SET search_path = ${place}, pg_temp;`;
}

function addition(name: string, place: string): string {
  const [kind, object = ''] = name.split(/ (.*)/s);
  const [table, part] = object.split(/\.(.*)/s);
  if (kind === 'index')
    return `an index that names a column of a claim slows every claim: DROP INDEX CONCURRENTLY ${place}.${quoteIdentifier(object)};`;
  if (kind === 'trigger') return `DROP TRIGGER ${quoteIdentifier(part ?? '')} ON ${place}.${table};`;
  return `${name}: what is not taskq's own belongs into tables of your own`;
}

const restored = (table: string): string =>
  `restore ${table} from a backup, or run its statements of ${fileWith(`CREATE TABLE ${table} (`)} again (and of the files after it)`;

/** The newest file of migrations with that text, as the package brings it. */
function fileWith(text: string): string {
  const name = migrations.findLast(({ up }) => up.includes(text))?.name ?? '';
  return `node_modules/taskq/sql/${name}.sql`;
}

const indexesUsed: Check = {
  id: 'indexes-used',
  group: 'schema',
  describes:
    'PostgreSQL plans discovery and claim over their indexes, for one set of values and once for all (EXPLAIN, nothing is run). Problem: it cannot. Warning: it can, but would read the whole of a big table now.',
  async examine({ onPrimary, schema }) {
    const { pages, plans } = await onPrimary(async (lane) => ({
      pages: await readTaskPages(lane),
      plans: await bothPlans(lane),
    }));
    const table = `${quoteIdentifier(schema)}.async_tasks`;
    const label = ({ statement, mode }: HotPlan) =>
      `${statement} (${mode === 'values' ? 'for values' : 'generic'})`;
    const unable = plans.filter(({ possible, index }) => !possible.indexes.has(index) || possible.readsAll);
    if (unable.length > 0) {
      const found = unable.map(({ possible, index }) => `${label(possible)} cannot use ${index}`);
      return verdict(
        'problem',
        named(found),
        'look at the check schema-objects',
        `REINDEX TABLE CONCURRENTLY ${table};`,
      );
    }
    const whole = plans.filter(({ now }) => now.readsAll);
    if (whole.length > 0 && pages > DOCTOR_SMALL_TABLE_PAGES)
      return verdict(
        'warning',
        `${named(whole.map(({ now }) => label(now)))} would read all ${pages} pages of the table: its statistics are old`,
        `ANALYZE ${table};`,
      );
    return ok(`${named(plans.map(({ possible, index }) => `${label(possible)} by ${index}`))}`);
  },
};

interface BothPlans {
  readonly index: string;
  readonly now: HotPlan;
  /** Were the table too big to be read whole. */
  readonly possible: HotPlan;
}

async function bothPlans(lane: OwnLane): Promise<BothPlans[]> {
  const plans: BothPlans[] = [];
  for (const { name, index } of HOT_STATEMENTS) {
    for (const mode of ['values', 'generic'] as const) {
      const now = await explainHot(lane, name, { mode, useIndexes: false });
      plans.push({ index, now, possible: await explainHot(lane, name, { mode, useIndexes: true }) });
    }
  }
  return plans;
}

const jit: Check = {
  id: 'jit',
  group: 'schema',
  describes:
    'What the planner thinks discovery and claim cost stays below `jit_above_cost`: compiling would take longer than running. Warning: it does not.',
  async examine({ onPrimary }) {
    const { settings, plans, login } = await onPrimary(async (lane) => ({
      settings: await readSettings(lane, ['jit', 'jit_above_cost']),
      plans: [
        await explainHot(lane, 'discover', { mode: 'values', useIndexes: false }),
        await explainHot(lane, 'claim', { mode: 'values', useIndexes: false }),
      ],
      ...(await readServer(lane)),
    }));
    if (settings.get('jit')?.value !== 'on') return ok('off');
    const above = Number(settings.get('jit_above_cost')?.value ?? -1);
    const cost = Math.max(...plans.map((plan) => plan.cost));
    if (above < 0 || cost < above)
      return ok(`on from a cost of ${above}; discovery and claim cost ${Math.round(cost)}`);
    return verdict(
      'warning',
      `on from a cost of ${above}, which discovery or claim reaches with ${Math.round(cost)}: each is compiled before it runs`,
      `ALTER ROLE ${quoteIdentifier(login)} SET jit = off;`,
    );
  },
};

export const SCHEMA_CHECKS = [migrationLevel, privileges, schemaObjects, indexesUsed, jit];
