import { formatDuration } from '../domain/duration.ts';
import {
  DOCTOR_DEAD_ROWS_PROBLEM,
  DOCTOR_DEAD_ROWS_WARN,
  DOCTOR_TRANSACTION_PROBLEM_FACTOR,
  DOCTOR_TRANSACTIONS_BEHIND,
} from '../domain/limits.ts';
import { quoteIdentifier } from '../domain/schema-name.ts';
import {
  type HorizonHolder,
  readHorizon,
  readServer,
  readSettings,
  readTableHealth,
  type TableHealth,
} from '../statements/doctor-server.ts';
import { type Check, type CheckStatus, ok, type Verdict, verdict, worse } from './check.ts';
import { counted, literal, named } from './phrases.ts';

// A queue's table is all churn. Rows that vacuum cannot remove stand at the head of the index of discovery, and every
// look walks over them.

const autovacuum: Check = {
  id: 'autovacuum',
  group: 'vacuum',
  describes: 'Autovacuum runs. Problem: it is off in the server, or for a table of the queue.',
  async examine({ onPrimary, schema }) {
    const { settings, tables } = await onPrimary(async (lane) => ({
      settings: await readSettings(lane, ['autovacuum', 'track_counts', 'autovacuum_naptime']),
      tables: await readTableHealth(lane),
    }));
    const off = ['autovacuum', 'track_counts'].filter((name) => settings.get(name)?.value === 'off');
    if (off.length > 0)
      return verdict(
        'problem',
        `off in the server: ${off.join(', ')}`,
        ...off.map((name) => `ALTER SYSTEM SET ${name} = on; SELECT pg_reload_conf();`),
      );
    const disabled = tables.filter(({ isEnabled }) => !isEnabled).map(({ name }) => name);
    if (disabled.length > 0)
      return verdict(
        'problem',
        `off for ${named(disabled)}`,
        ...disabled.map(
          (name) => `ALTER TABLE ${quoteIdentifier(schema)}.${name} RESET (autovacuum_enabled);`,
        ),
      );
    return ok(`on, looks every ${settings.get('autovacuum_naptime')?.value ?? '?'} s`);
  },
};

const deadRows: Check = {
  id: 'dead-rows',
  group: 'vacuum',
  describes:
    'Dead rows of each table, in units of what lets autovacuum begin. Warning: 5 times that. Problem: 50 times.',
  async examine({ onPrimary, schema }) {
    const tables = await onPrimary(readTableHealth);
    const judged = tables.map((table) => ({ table, status: statusOfDeadRows(table) }));
    const late = judged.filter(({ status }) => status !== 'ok');
    if (late.length > 0)
      return verdict(
        judged.reduce<CheckStatus>((status, of) => worse(status, of.status), 'ok'),
        named(late.map(({ table }) => describeTable(table))),
        'look at the check vacuum-horizon first: what holds vacuum back holds this back too',
        ...late.map(({ table }) => `VACUUM ${quoteIdentifier(schema)}.${table.name};`),
      );
    const worst = [...tables].sort((left, right) => right.deadRows - left.deadRows)[0];
    return ok(worst === undefined ? 'there are no tables' : describeTable(worst));
  },
};

function statusOfDeadRows({ deadRows: dead, threshold }: TableHealth): CheckStatus {
  if (dead >= threshold * DOCTOR_DEAD_ROWS_PROBLEM) return 'problem';
  return dead >= threshold * DOCTOR_DEAD_ROWS_WARN ? 'warning' : 'ok';
}

function describeTable({ name, rows, deadRows: dead, threshold, vacuumedAgoMs }: TableHealth): string {
  const last =
    vacuumedAgoMs === null
      ? 'no vacuum on record'
      : `last vacuum ${formatDuration(Math.max(0, vacuumedAgoMs))} ago`;
  return `${name}: ${counted(dead, 'dead row')} beside ${rows} live ones (autovacuum begins at ${Math.ceil(threshold)}), ${last}`;
}

const vacuumHorizon: Check = {
  id: 'vacuum-horizon',
  group: 'vacuum',
  describes:
    'The oldest transaction, prepared transaction, replication slot or standby that keeps vacuum from removing rows. Warning: 5 minutes old (or a million transactions, where there is no age). Problem: an hour (twelve million). Unknown: the role may not see other roles’ sessions.',
  async examine({ onPrimary, oldTransactionMs }) {
    const { holders, server } = await onPrimary(async (lane) => ({
      holders: await readHorizon(lane),
      server: await readServer(lane),
    }));
    return judgeHorizon(holders, { oldTransactionMs, seesAll: server.seesAllSessions, role: server.role });
  },
};

export function judgeHorizon(
  holders: readonly HorizonHolder[],
  { oldTransactionMs, seesAll, role }: { oldTransactionMs: number; seesAll: boolean; role: string },
): Verdict {
  const judged = holders
    .map((holder) => ({ holder, status: statusOfHolder(holder, oldTransactionMs) }))
    .filter(({ status }) => status !== 'ok');
  if (judged.length > 0) {
    const status = judged.reduce<CheckStatus>((worst, of) => worse(worst, of.status), 'ok');
    const remedies = judged.slice(0, 5).map(({ holder }) => remedyFor(holder));
    return verdict(status, named(judged.map(({ holder }) => describeHolder(holder))), ...remedies);
  }
  if (!seesAll)
    return verdict(
      'unknown',
      `nothing old among what role ${role} may see, which is not the sessions of other roles`,
      `GRANT pg_read_all_stats TO ${quoteIdentifier(role)};`,
    );
  const [oldest] = holders;
  return ok(oldest === undefined ? 'nothing holds vacuum back' : `the oldest: ${describeHolder(oldest)}`);
}

function statusOfHolder({ ageMs, transactions }: HorizonHolder, oldMs: number): CheckStatus {
  const share = ageMs === null ? transactions / DOCTOR_TRANSACTIONS_BEHIND : ageMs / oldMs;
  if (share >= DOCTOR_TRANSACTION_PROBLEM_FACTOR) return 'problem';
  return share >= 1 ? 'warning' : 'ok';
}

function describeHolder({ kind, name, pid, role, application, ageMs, transactions }: HorizonHolder): string {
  const age = ageMs === null ? counted(transactions, 'transaction') : formatDuration(ageMs);
  const who = `${role === null ? '' : ` of ${role}`}${application ? ` (${application})` : ''}`;
  if (kind === 'session') return `pid ${pid}${who}, ${name}, its transaction began ${age} ago`;
  if (kind === 'standby') return `standby ${application || pid}, behind by ${age}`;
  if (kind === 'slot') return `replication slot ${name}${pid === null ? ', unused' : ''}, behind by ${age}`;
  return `prepared transaction ${name}${who}, ${age} old`;
}

function remedyFor({ kind, name, pid }: HorizonHolder): string {
  if (kind === 'session') return `end it where it came from, or: SELECT pg_terminate_backend(${pid});`;
  if (kind === 'standby')
    return 'end the long query on the standby, or switch hot_standby_feedback off there';
  if (kind === 'slot')
    return pid === null
      ? `nobody reads from it; if nobody will: SELECT pg_drop_replication_slot(${literal(name)});`
      : `see why its reader lags: SELECT * FROM pg_stat_replication WHERE pid = ${pid};`;
  return `decide it where it came from, or: ROLLBACK PREPARED ${literal(name)};`;
}

export const VACUUM_CHECKS = [autovacuum, deadRows, vacuumHorizon];
