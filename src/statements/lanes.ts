import type { CompiledQuery, Kysely } from 'kysely';
import type { Brand } from '../domain/brand.ts';

/**
 * What a statement asks of somebody's transaction. Every Kysely has it, of whichever copy or version of the package;
 * `queryExecutor` makes one of any other driver.
 */
export interface QueryExecutor {
  executeQuery<Row>(query: CompiledQuery<Row>): Promise<{ readonly rows: Row[] }>;
  withoutPlugins(): QueryExecutor;
}

/** The queue's own connections, and the schema of its tables. */
export interface OwnLane {
  // biome-ignore lint/suspicious/noExplicitAny: any Kysely over any tables will do.
  readonly executor: Kysely<any>;
  readonly schema: string;
  /** The queue opened the connections: only there may a statement be tried again (`statement.ts`). */
  readonly isOwn: true;
}

/** Somebody else's transaction, and the schema of the queue's tables. */
interface ForeignLane {
  readonly executor: QueryExecutor;
  readonly schema: string;
  readonly isOwn: false;
}

/** Where statements run. */
export type Lane = OwnLane | ForeignLane;

/** `DATABASE_URL_READ`, or else the primary. May lag behind; what it answers is a hint. */
export type ReadLane = Brand<OwnLane, 'ReadLane'>;

/** `DATABASE_URL`: the primary. Every claim and settlement runs here. */
export type WriteLane = Brand<OwnLane, 'WriteLane'>;

/** The transaction of whoever enqueues. */
export type CallerLane = Brand<ForeignLane, 'CallerLane'>;

export const readLane = (executor: OwnLane['executor'], schema: string): ReadLane =>
  ({ executor: executor.withoutPlugins(), schema, isOwn: true }) as ReadLane;

export const writeLane = (executor: OwnLane['executor'], schema: string): WriteLane =>
  ({ executor: executor.withoutPlugins(), schema, isOwn: true }) as WriteLane;

// The caller's plugins (CamelCasePlugin, withSchema) must not touch the queue's statements.
export const callerLane = (executor: QueryExecutor, schema: string): CallerLane =>
  ({ executor: executor.withoutPlugins(), schema, isOwn: false }) as CallerLane;
