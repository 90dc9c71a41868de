import { formatDuration } from '../domain/duration.ts';
import {
  DOCTOR_CONNECTIONS_PROBLEM,
  DOCTOR_CONNECTIONS_WARN,
  DOCTOR_TIMEOUT_MS_MIN,
  LISTENER_HEARTBEAT_MS,
  STATEMENT_TIMEOUT_MS,
} from '../domain/limits.ts';
import { quoteIdentifier } from '../domain/schema-name.ts';
import {
  readConnectionUse,
  readServer,
  readSettings,
  type ServerSetting,
} from '../statements/doctor-server.ts';
import { type Check, type CheckStatus, ok, verdict, worse } from './check.ts';
import { named } from './phrases.ts';

// Settings of the server, and of the role in it, that change what the queue promises.

/** The oldest PostgreSQL that taskq is tested with. */
const SUPPORTED_VERSION_NUMBER = 140_000;

const serverVersion: Check = {
  id: 'server-version',
  group: 'server',
  describes: 'PostgreSQL 14 or newer. Problem: older.',
  async examine({ onPrimary }) {
    const { version, versionNumber } = await onPrimary(readServer);
    if (versionNumber >= SUPPORTED_VERSION_NUMBER) return ok(`PostgreSQL ${version}`);
    return verdict(
      'problem',
      `PostgreSQL ${version} is older than 14`,
      'upgrade the server to PostgreSQL 14 or newer',
    );
  },
};

const connections: Check = {
  id: 'connections',
  group: 'server',
  describes:
    'Connections in use against the limits of the server, the database and the role. Warning: 80 %. Problem: 95 %.',
  async examine({ onPrimary }) {
    const use = await onPrimary(readConnectionUse);
    const limits = [
      { of: 'the server', used: use.used, max: use.max - use.reserved },
      { of: 'the database', used: use.usedOfDatabase, max: use.databaseMax },
      { of: 'the role', used: use.usedByRole, max: use.roleMax },
    ].filter((limit): limit is { of: string; used: number; max: number } => limit.max !== null);
    const shares = limits.map(({ used, max }) => used / Math.max(1, max));
    const share = Math.max(...shares);
    const found = named(limits.map(({ of, used, max }) => `${used} of the ${max} of ${of}`));
    if (share < DOCTOR_CONNECTIONS_WARN) return ok(found);
    return verdict(
      share >= DOCTOR_CONNECTIONS_PROBLEM ? 'problem' : 'warning',
      found,
      'see who has them: SELECT usename, application_name, state, count(*) FROM pg_stat_activity GROUP BY 1, 2, 3 ORDER BY 4 DESC;',
      'lower the pools (TASKQ_POOL_MAX for the workers), put a pooler in between, or raise the limit',
    );
  },
};

/** A setting that ends statements or sessions, and from which value on it does not disturb. */
const TIMEOUTS = [
  {
    name: 'statement_timeout',
    enoughMs: STATEMENT_TIMEOUT_MS,
    cuts: 'a claim or a settlement that waits, and every prune',
  },
  { name: 'transaction_timeout', enoughMs: STATEMENT_TIMEOUT_MS, cuts: 'a bulk replay or a prune' },
  { name: 'lock_timeout', enoughMs: DOCTOR_TIMEOUT_MS_MIN, cuts: 'an enqueue that waits for its unique key' },
  {
    name: 'idle_in_transaction_session_timeout',
    enoughMs: DOCTOR_TIMEOUT_MS_MIN,
    cuts: 'transactions of handlers that settle in their own',
  },
  {
    name: 'idle_session_timeout',
    enoughMs: 2 * LISTENER_HEARTBEAT_MS,
    cuts: 'the LISTEN connection, between two of its heartbeats',
  },
] as const;

const timeouts: Check = {
  id: 'timeouts',
  group: 'server',
  describes:
    'Time limits that the role has in this database. Problem: `statement_timeout` or `transaction_timeout` below 1 s. Warning: below 30 s, another limit below 1 s, or `idle_session_timeout` below 2 min.',
  async examine({ onPrimary }) {
    const { settings, login } = await onPrimary(async (lane) => ({
      settings: await readSettings(
        lane,
        TIMEOUTS.map(({ name }) => name),
      ),
      ...(await readServer(lane)),
    }));
    const short = TIMEOUTS.flatMap((limit) => {
      const setting = settings.get(limit.name);
      const ms = Number(setting?.value ?? 0);
      return setting !== undefined && ms > 0 && ms < limit.enoughMs ? [{ ...limit, ms, setting }] : [];
    });
    if (short.length === 0) return ok('none that cuts anything short');
    const status = short.reduce<CheckStatus>(
      (worst, { ms, enoughMs }) =>
        worse(worst, enoughMs === STATEMENT_TIMEOUT_MS && ms < DOCTOR_TIMEOUT_MS_MIN ? 'problem' : 'warning'),
      'ok',
    );
    return verdict(
      status,
      named(
        short.map(
          ({ name, ms, cuts, setting }) =>
            `${name} is ${formatDuration(ms)}${from(setting)}: it cuts ${cuts}`,
        ),
      ),
      ...short.map(({ name, enoughMs }) => setting(login, name, `'${enoughMs / 1_000}s'`)),
    );
  },
};

const isolation: Check = {
  id: 'isolation',
  group: 'server',
  describes:
    '`default_transaction_isolation` is `read committed`. Warning: stricter; statements that lose to another are sent again.',
  async examine({ onPrimary }) {
    const name = 'default_transaction_isolation';
    const { settings, login } = await onPrimary(async (lane) => ({
      settings: await readSettings(lane, [name]),
      ...(await readServer(lane)),
    }));
    const isolationSetting = settings.get(name) as ServerSetting;
    if (isolationSetting.value === 'read committed') return ok('read committed');
    return verdict(
      'warning',
      `${isolationSetting.value}${from(isolationSetting)}: statements that lose to another are sent again, and an enqueue in a transaction of yours may fail with 40001`,
      setting(login, name, "'read committed'"),
    );
  },
};

const durability: Check = {
  id: 'durability',
  group: 'server',
  describes:
    'A commit is on disk when it is answered. Problem: `fsync` is off. Warning: `synchronous_commit` or `full_page_writes` is off.',
  async examine({ onPrimary }) {
    const { settings, login } = await onPrimary(async (lane) => ({
      settings: await readSettings(lane, ['fsync', 'full_page_writes', 'synchronous_commit']),
      ...(await readServer(lane)),
    }));
    const value = (name: string) => settings.get(name)?.value;
    const found: string[] = [];
    const remedies: string[] = [];
    if (value('fsync') === 'off') {
      found.push('fsync is off: a crash of the machine may destroy the whole database');
      remedies.push('ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();');
    }
    if (value('full_page_writes') === 'off') {
      found.push('full_page_writes is off: a crash may tear pages, unless the file system writes them whole');
      remedies.push('ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf();');
    }
    if (value('synchronous_commit') === 'off') {
      found.push(
        'synchronous_commit is off: a crash loses the enqueues of the last moments, which were answered',
      );
      remedies.push(setting(login, 'synchronous_commit', 'on'));
    }
    if (found.length === 0) return ok(`synchronous_commit is ${value('synchronous_commit')}`);
    return verdict(value('fsync') === 'off' ? 'problem' : 'warning', named(found), ...remedies);
  },
};

/** Where a setting came from, unless it is the server's own. */
function from({ source }: ServerSetting): string {
  if (source === 'user') return ' (set for the role)';
  return source === 'database' ? ' (set for the database)' : '';
}

const setting = (login: string, name: string, value: string): string =>
  `ALTER ROLE ${quoteIdentifier(login)} SET ${name} = ${value};`;

export const SERVER_CHECKS = [serverVersion, connections, timeouts, isolation, durability];
