import type { Brand } from './brand.ts';

/** A row's id: a bigint in the database, text here, so that no driver setting can round it. */
export type TaskId = Brand<string, 'TaskId'>;

/** The random uuid of one claim. Every write about a held row carries it; no two claims share one. */
export type LeaseToken = Brand<string, 'LeaseToken'>;

/**
 * The right to write about one row. Only a claim makes one (`statements/claim.ts`),
 * and a settle statement can be built from nothing else.
 */
export interface Lease {
  readonly id: TaskId;
  readonly token: LeaseToken;
}

const TASK_ID_MAX = 9_223_372_036_854_775_807n;

/** `undefined` when the text is no task id; for ids that come from a command line or a URL. */
export function parseTaskId(text: string): TaskId | undefined {
  if (!/^[0-9]{1,19}$/.test(text)) return undefined;
  const value = BigInt(text);
  return value >= 1n && value <= TASK_ID_MAX ? (value.toString() as TaskId) : undefined;
}
