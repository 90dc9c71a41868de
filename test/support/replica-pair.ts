import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { administer } from './databases.ts';
import { waitFor } from './wait.ts';

const run = promisify(execFile);

/** A primary and its streaming hot standby. */
export interface ReplicaPair {
  readonly primary: EmbeddedPostgres;
  readonly replica: EmbeddedPostgres;
  /** The replica goes on receiving and stops showing what it receives. */
  pauseReplay(): Promise<void>;
  resumeReplay(): Promise<void>;
  /** Resolves once the replica shows everything that was committed on the primary before the call. */
  caughtUp(): Promise<void>;
  /** Makes the replica a primary: a failover, when the primary was crashed before. */
  promote(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts both on embedded servers, with those settings too. Databases are created on the primary by the test. */
export async function startReplicaPair(
  settings: Readonly<Record<string, string>> = {},
): Promise<ReplicaPair> {
  const binaryPackage = process.env['TASKQ_TEST_POSTGRES_PACKAGE'];
  const common = { durable: false, ...(binaryPackage ? { binaryPackage } : {}) };
  const place = path.join(tmpdir(), `taskq-pair-${randomBytes(4).toString('hex')}`);
  const [primaryDirectory, replicaDirectory] = ['primary', 'replica'].map((name) => path.join(place, name));
  const maker = await startEmbeddedPostgres({ ...common, dataDirectory: primaryDirectory as string });
  await maker.stop();
  await copyAsStandby(primaryDirectory as string, replicaDirectory as string);
  const primary = await startEmbeddedPostgres({
    ...common,
    dataDirectory: primaryDirectory as string,
    keep: false,
    // Commits are written at once, so that `caughtUp` knows where the primary's log ends.
    settings: { ...settings, synchronous_commit: 'on' },
  });
  const { host, port, user } = primary.connection();
  const replica = await startEmbeddedPostgres({
    ...common,
    dataDirectory: replicaDirectory as string,
    keep: false,
    settings: {
      ...settings,
      primary_conninfo: `host=${host} port=${port} user=${user}`,
      hot_standby_feedback: 'on',
    },
  });
  return pairOf(primary, replica, place);
}

/** The binaries bring no pg_basebackup; a cluster that was shut down cleanly may be copied as it lies. */
async function copyAsStandby(from: string, to: string): Promise<void> {
  await run('cp', ['-a', from, to]);
  const signal = path.join(to, 'cluster', 'standby.signal');
  await writeFile(signal, '');
  const { uid, gid } = await stat(path.join(to, 'cluster'));
  await chown(signal, uid, gid);
}

function pairOf(primary: EmbeddedPostgres, replica: EmbeddedPostgres, place: string): ReplicaPair {
  const onReplica = async (statement: string) => {
    const { rows } = await administer(replica.url(), statement);
    return Object.values(rows[0] ?? {})[0];
  };
  return {
    primary,
    replica,
    async pauseReplay() {
      await onReplica('SELECT pg_wal_replay_pause()');
      // The pause is only requested; a record in hand is still replayed.
      await waitFor(async () => (await onReplica('SELECT pg_get_wal_replay_pause_state()')) === 'paused');
    },
    async resumeReplay() {
      await onReplica('SELECT pg_wal_replay_resume()');
    },
    async caughtUp() {
      const { rows } = await administer(primary.url(), 'SELECT pg_current_wal_flush_lsn()::text AS lsn');
      await waitFor(() => onReplica(`SELECT pg_last_wal_replay_lsn() >= '${rows[0].lsn}'::pg_lsn`));
    },
    async promote() {
      await onReplica('SELECT pg_promote()');
      await waitFor(async () => (await onReplica('SELECT pg_is_in_recovery()')) === false);
    },
    async stop() {
      await Promise.all([replica.stop(), primary.stop()]);
      await rm(place, { recursive: true, force: true });
    },
  };
}
