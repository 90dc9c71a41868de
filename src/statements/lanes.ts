import type { Kysely } from 'kysely';
import type { Brand } from '../domain/brand.ts';

/** Where statements run: a connection pool or somebody's transaction, and the schema of the queue's tables. */
export interface Lane {
  // The tables of the caller's own database are none of the queue's business.
  // biome-ignore lint/suspicious/noExplicitAny: any Kysely over any tables will do.
  readonly executor: Kysely<any>;
  readonly schema: string;
  /** Whether the queue opened the connections: only there may a statement be tried again (`statement.ts`). */
  readonly isOwn: boolean;
}

/** `DATABASE_URL_READ`, or else the primary. May lag behind; what it answers is a hint. */
export type ReadLane = Brand<Lane, 'ReadLane'>;

/** `DATABASE_URL`: the primary. Every claim and settlement runs here. */
export type WriteLane = Brand<Lane, 'WriteLane'>;

/** The transaction of whoever enqueues. */
export type CallerLane = Brand<Lane, 'CallerLane'>;

export const readLane = (executor: Lane['executor'], schema: string): ReadLane =>
  ({ executor: executor.withoutPlugins(), schema, isOwn: true }) as ReadLane;

export const writeLane = (executor: Lane['executor'], schema: string): WriteLane =>
  ({ executor: executor.withoutPlugins(), schema, isOwn: true }) as WriteLane;

// The caller's plugins (CamelCasePlugin, withSchema) must not touch the queue's statements.
export const callerLane = (executor: Lane['executor'], schema: string): CallerLane =>
  ({ executor: executor.withoutPlugins(), schema, isOwn: false }) as CallerLane;
