import { createHash } from 'node:crypto';

/** PostgreSQL cuts identifiers to this many bytes, and pg_notify refuses longer channels. */
const IDENTIFIER_BYTES_MAX = 63;

/** What a notification carries when the time of a test database was moved; that of an enqueue carries nothing. */
export const CLOCK_MOVED = 'clock';

/**
 * The notification channel of a schema: its own, so that two queues in one database do not wake each other.
 * A schema whose name would not fit, or needs quoting, is hashed: LISTEN and pg_notify then always agree.
 */
export function wakeChannel(schema: string): string {
  const plain = `async_task_pending_${schema}`;
  if (/^[a-z0-9_]+$/.test(schema) && plain.length <= IDENTIFIER_BYTES_MAX) return plain;
  return `async_task_pending#${createHash('sha256').update(schema).digest('hex').slice(0, 32)}`;
}
