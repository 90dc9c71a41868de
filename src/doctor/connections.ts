import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { formatDuration } from '../domain/duration.ts';
import {
  CLOCK_OFFSET_WARN_MS,
  DOCTOR_CLOCK_SAMPLES,
  DOCTOR_LAG_LOOK_MS,
  DOCTOR_LAG_WAIT_MS,
  DOCTOR_NOTIFY_WAIT_MS,
} from '../domain/limits.ts';
import { quoteIdentifier } from '../domain/schema-name.ts';
import { readClock, readLogPosition, readServer, readSettings } from '../statements/doctor-server.ts';
import { type Check, type Examination, ok, type Verdict, verdict } from './check.ts';
import { counted } from './phrases.ts';
import { isPooled, withSessions } from './probe-session.ts';

// Whether the connections that a worker opens can carry what it sends over them.

const primaryWritable: Check = {
  id: 'primary-writable',
  group: 'connections',
  describes:
    '`DATABASE_URL` leads to a primary that takes writes. Problem: a standby, or read-only by default.',
  async examine({ onPrimary }) {
    const { server, readOnly } = await onPrimary(async (lane) => ({
      server: await readServer(lane),
      readOnly: (await readSettings(lane, ['default_transaction_read_only'])).get(
        'default_transaction_read_only',
      ),
    }));
    if (server.inRecovery)
      return verdict(
        'problem',
        'the database is a standby: nothing can be claimed or enqueued',
        'point DATABASE_URL at the primary; a standby belongs into DATABASE_URL_READ',
      );
    if (readOnly?.value === 'on')
      return verdict(
        'problem',
        `transactions of role ${server.login} are read-only by default (set in: ${readOnly.source})`,
        `ALTER ROLE ${quoteIdentifier(server.login)} SET default_transaction_read_only = off;`,
      );
    return ok('a primary that takes writes');
  },
};

const listen: Check = {
  id: 'listen',
  group: 'connections',
  describes:
    'LISTEN on the listen URL hears a NOTIFY of the primary; a real one is sent, on a channel of its own. Problem: it does not, or a transaction pooler stands in between.',
  async examine({ options }) {
    const { database, listenDatabase = database } = options;
    return withSessions(listenDatabase, 2, async (first, second) => {
      const pooled = await isPooled(first, second);
      const heardMs = pooled ? undefined : await hear(first, database);
      if (heardMs !== undefined) return ok(`a notification arrived after ${Math.ceil(heardMs)} ms`);
      return verdict(
        'problem',
        pooled
          ? 'the listen URL leads through a pooler in transaction mode, which carries no LISTEN: tasks wait for the poll'
          : `no notification arrived within ${formatDuration(DOCTOR_NOTIFY_WAIT_MS)}: tasks wait for the poll`,
        pooled
          ? 'set DATABASE_URL_LISTEN to the primary itself, past the pooler'
          : 'check that DATABASE_URL_LISTEN and DATABASE_URL name the same database of the same server',
      );
    });
  },
};

/** Milliseconds until a NOTIFY sent over `database` was heard; undefined when it was not. */
async function hear(
  listener: pg.Client,
  database: Examination['options']['database'],
): Promise<number | undefined> {
  const channel = `taskq_doctor_${randomBytes(6).toString('hex')}`;
  const over = new AbortController();
  const heard = new Promise<number>((resolve) => {
    listener.on('notification', () => resolve(performance.now()));
  });
  await listener.query(`listen ${pg.escapeIdentifier(channel)}`);
  const sentAt = performance.now();
  await withSessions(database, 1, (sender) =>
    (sender as pg.Client).query('select pg_notify($1, $2)', [channel, '']),
  );
  const silence = delay(DOCTOR_NOTIFY_WAIT_MS, undefined, { signal: over.signal }).catch(() => undefined);
  const heardAt = await Promise.race([heard, silence]);
  over.abort();
  return heardAt === undefined ? undefined : heardAt - sentAt;
}

/** SQLSTATEs of a pooler that mixes up prepared statements: one is missing, or is there already. */
const STATEMENTS_MIXED_UP = ['26000', '42P05', '08P01'];

const preparedStatements: Check = {
  id: 'prepared-statements',
  group: 'connections',
  describes:
    'Named prepared statements survive on `DATABASE_URL`. Problem: a pooler in between loses them, and they are not switched off.',
  async examine({ options: { database, preparedStatements: areUsed = true } }) {
    if (!areUsed) return ok('switched off, as behind PgBouncer below 1.21');
    return withSessions(database, 2, async (first, second) => {
      const pooled = await isPooled(first, second);
      const error = await preparedTwice(first, second).catch((thrown: unknown) => thrown);
      if (error === undefined)
        return ok(pooled ? 'a pooler stands in between and carries them' : 'they survive');
      if (!(error instanceof pg.DatabaseError) || !STATEMENTS_MIXED_UP.includes(error.code ?? ''))
        throw error;
      return verdict(
        'problem',
        `a pooler stands in between and loses prepared statements: ${error.message}`,
        'set TASKQ_PREPARED_STATEMENTS=false, or use PgBouncer 1.21 or newer with max_prepared_statements above 0',
      );
    });
  },
};

/** Sends one named statement again while the server connection that knows it is lent to another session. */
async function preparedTwice(first: pg.Client, second: pg.Client): Promise<undefined> {
  const query = {
    name: `taskq_doctor_${randomBytes(6).toString('hex')}`,
    text: 'select $1::int',
    values: [1],
  };
  await first.query(query);
  await second.query('begin');
  try {
    await second.query('select 1');
    await first.query(query);
  } finally {
    await second.query('rollback');
  }
  await first.query(query);
}

const readReplica: Check = {
  id: 'read-replica',
  group: 'connections',
  describes:
    'The read lane is a standby that follows the primary. Warning: it is no standby, or does not catch up within two seconds. Problem: it cannot be reached.',
  async examine({ options, onPrimary, onReadLane }) {
    if (options.readDatabase === undefined) return ok('none is configured: reads go to the primary');
    let isStandby: boolean;
    try {
      isStandby = (await onReadLane(readServer)).inRecovery;
    } catch (error) {
      return verdict(
        'problem',
        `it cannot be read: ${error instanceof Error ? error.message : String(error)}`,
        'check DATABASE_URL_READ; without it, workers read on the primary',
      );
    }
    if (!isStandby)
      return verdict(
        'warning',
        'the read lane is no standby: it may be another database, whose tasks nobody can claim',
        'check DATABASE_URL_READ, or leave it out when it is the primary',
      );
    return followed(onPrimary, onReadLane);
  },
};

async function followed(
  onPrimary: Examination['onPrimary'],
  onReadLane: Examination['onReadLane'],
): Promise<Verdict> {
  const target = await onPrimary(readLogPosition);
  const began = performance.now();
  for (;;) {
    const position = await onReadLane(readLogPosition);
    const waitedMs = performance.now() - began;
    if (target === undefined || position === undefined)
      return verdict('unknown', 'the server does not say how far its log was replayed');
    if (position >= target) return ok(`a standby, behind by ${Math.ceil(waitedMs)} ms at the most`);
    if (waitedMs > DOCTOR_LAG_WAIT_MS)
      return verdict(
        'warning',
        `a standby that is behind by ${counted(target - position, 'byte')} of log and more than ${formatDuration(DOCTOR_LAG_WAIT_MS)}: new tasks are found late`,
        'on the standby: SELECT pg_is_wal_replay_paused(), now() - pg_last_xact_replay_timestamp(); SELECT pg_wal_replay_resume() when it is paused',
      );
    await delay(DOCTOR_LAG_LOOK_MS);
  }
}

const clockOffset: Check = {
  id: 'clock-offset',
  group: 'connections',
  describes:
    "This machine's clock against the database's, by the fastest of five round trips. Warning: 3 s apart. Problem: as much as the lease margin.",
  async examine({ onPrimary, clock, leaseMarginMs }) {
    const { offsetMs, doubtMs } = await onPrimary(async (lane) => {
      let best = { offsetMs: 0, doubtMs: Number.POSITIVE_INFINITY };
      for (let n = 0; n < DOCTOR_CLOCK_SAMPLES; n += 1) {
        const [wall, began] = [clock.wall(), performance.now()];
        const databaseMs = await readClock(lane);
        const doubt = (performance.now() - began) / 2;
        if (doubt < best.doubtMs) best = { offsetMs: databaseMs - wall - doubt, doubtMs: doubt };
      }
      return best;
    });
    const apart = Math.abs(offsetMs);
    const direction = offsetMs < 0 ? 'ahead of' : 'behind';
    const found = `this machine is ${formatDuration(apart)} ${direction} the database, to ${Math.ceil(doubtMs)} ms`;
    if (apart < CLOCK_OFFSET_WARN_MS) return ok(found);
    const remedy =
      'keep both clocks with NTP: chronyc tracking, or timedatectl timesync-status, on both machines';
    const margin = `the margin of a lease is ${formatDuration(leaseMarginMs)}`;
    return verdict(apart >= leaseMarginMs ? 'problem' : 'warning', `${found}; ${margin}`, remedy);
  },
};

export const CONNECTION_CHECKS = [primaryWritable, listen, preparedStatements, readReplica, clockOffset];
