import {
  type Compilable,
  type CompiledQuery,
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type RawBuilder,
  sql,
} from 'kysely';
import type { DB } from '../../generated/db.ts';
import { CONFLICT_RETRIES_MAX } from '../domain/limits.ts';
import { type Lane, type WriteLane, writeLane } from './lanes.ts';

// Building and compiling a query costs as much as a round trip, so each statement is compiled once for a
// schema and then only given its values. `parameter('ids')` marks the place of a value; what Kysely compiles
// is therefore the same text every time, which is also what lets the driver prepare it by name.

/** A value's place in a statement that is compiled once. */
export function parameter<Value>(name: string): RawBuilder<Value> {
  return sql<Value>`${new Parameter(name)}`;
}

class Parameter {
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

export type Values = Readonly<Record<string, unknown>>;

export interface Statement<Row> {
  /** The compiled query, for plans and for the test that looks for the fence. */
  compile(schema: string): CompiledQuery<Row>;
  /** Runs it as one statement of its own, or as a part of the lane's transaction. */
  run(lane: Lane, values: Values): Promise<Row[]>;
}

/**
 * A statement, written once with Kysely's builder against the generated table types. The builder puts the schema
 * before the tables; before a function of ours the statement puts it itself.
 */
export function statement<Row>(build: (db: Kysely<DB>, schema: string) => Compilable<Row>): Statement<Row> {
  const compiledBySchema = new Map<string, CompiledQuery<Row>>();
  const compile = (schema: string): CompiledQuery<Row> => {
    let compiled = compiledBySchema.get(schema);
    if (compiled === undefined) {
      compiled = build(compiler.withSchema(schema), schema).compile();
      compiledBySchema.set(schema, compiled);
      queueTexts.add(compiled.sql);
    }
    return compiled;
  };
  return {
    compile,
    async run(lane, values) {
      const compiled = compile(lane.schema);
      const parameters = compiled.parameters.map((place) => {
        if (!(place instanceof Parameter)) return place;
        if (!Object.hasOwn(values, place.name))
          throw new Error(`statement lacks a value for '${place.name}'`);
        return values[place.name];
      });
      return executed(lane, { ...compiled, parameters });
    },
  };
}

const queueTexts = new Set<string>();

/** Whether `text` is a statement of the queue, compiled here: those are few, and worth preparing. */
export function isQueueStatement(text: string): boolean {
  return queueTexts.has(text);
}

// A database may default to an isolation level under which a statement fails because another one has committed
// (40001), which READ COMMITTED never does. The first try costs one round trip, so only a statement that has lost
// is sent again under READ COMMITTED; it wrote nothing, so nothing is done twice. In a transaction of the caller's
// there is nothing to repeat: the error is the caller's, whose transaction it has aborted.
// Pinned by test/hazards/44-a-stricter-default-isolation-fails-a-task.test.ts.
async function executed<Row>(lane: Lane, query: CompiledQuery<Row>): Promise<Row[]> {
  if (!lane.isOwn) return (await lane.executor.executeQuery(query)).rows;
  const { executor } = lane;
  if (executor.isTransaction) return (await executor.executeQuery(query)).rows;
  for (let retries = 0; ; retries += 1) {
    try {
      if (retries === 0) return (await executor.executeQuery(query)).rows;
      const readCommitted = executor.transaction().setIsolationLevel('read committed');
      return (await readCommitted.execute((transaction) => transaction.executeQuery(query))).rows;
    } catch (error) {
      if (retries === CONFLICT_RETRIES_MAX || !isConflict(error)) throw error;
    }
  }
}

/**
 * Several statements as one transaction of the queue's own, under READ COMMITTED: each sees what was committed
 * before it began. Within a transaction it is a part of that.
 */
export async function inTransaction<Answer>(
  lane: WriteLane,
  work: (within: WriteLane) => Promise<Answer>,
): Promise<Answer> {
  if (lane.executor.isTransaction) return work(lane);
  const transaction = lane.executor.transaction().setIsolationLevel('read committed');
  return transaction.execute((within) => work(writeLane(within, lane.schema)));
}

/** Serialization failure; deadlock; a standby asked for SERIALIZABLE, which it does not have. */
const CONFLICTS = new Set(['40001', '40P01', '0A000']);

function isConflict(error: unknown): boolean {
  return error instanceof Error && 'code' in error && CONFLICTS.has(String(error.code));
}

/** Builds queries without a database behind it. */
const compiler = new Kysely<DB>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
});
