import { setTimeout as delay } from 'node:timers/promises';
import { formatDuration } from '../domain/duration.ts';
import { TaskqError } from '../domain/errors.ts';
import {
  DOCTOR_CHECK_MS,
  DOCTOR_TRANSACTION_MS,
  LEASE_MARGIN_MS,
  RETENTION_MS_DEFAULT,
} from '../domain/limits.ts';
import { checkSchemaName } from '../domain/schema-name.ts';
import { describeThrown } from '../domain/thrown.ts';
import { systemClock } from '../domain/time.ts';
import { type Lanes, openLanes } from '../postgres/lanes.ts';
import { lookOnly } from '../statements/doctor-server.ts';
import { readLane, writeLane } from '../statements/lanes.ts';
import {
  type Check,
  type CheckStatus,
  type DoctorOptions,
  type Examination,
  type Finding,
  type Verdict,
  verdict,
} from './check.ts';
import { CONNECTION_CHECKS } from './connections.ts';
import { SCHEMA_CHECKS } from './schema.ts';
import { SERVER_CHECKS } from './server.ts';
import { TASK_CHECKS } from './tasks.ts';
import { UPKEEP_CHECKS } from './upkeep.ts';
import { VACUUM_CHECKS } from './vacuum.ts';
import { WORKER_CHECKS } from './workers.ts';

/** Every check, in the order in which they are made and documented. */
export const CHECKS: readonly Check[] = [
  ...CONNECTION_CHECKS,
  ...SCHEMA_CHECKS,
  ...VACUUM_CHECKS,
  ...SERVER_CHECKS,
  ...WORKER_CHECKS,
  ...TASK_CHECKS,
  ...UPKEEP_CHECKS,
];

/** The one finding when there is nobody to ask. */
export const UNREACHABLE = 'database-reachable';

export interface DoctorReport {
  readonly schema: string;
  /** How many checks ended so. */
  readonly counts: Readonly<Record<CheckStatus, number>>;
  /** In the order of the checks. Of a database that cannot be reached: one, `database-reachable`. */
  readonly findings: readonly Finding[];
}

/**
 * Examines a queue: its connections, schema, server and tasks. Writes nothing but a notification on a channel of its
 * own. Never rejects for what it finds: a check that fails is `unknown`, with its error.
 * @throws TaskqError `CONFIG_INVALID` for a name that no schema can have, `OPTION_INVALID` for a check that there is not
 */
export async function doctor(options: DoctorOptions): Promise<DoctorReport> {
  const schema = checkSchemaName(options.schema ?? 'taskq');
  const checks = chosen(options.checks);
  const lanes = openLanes({
    database: options.database,
    readDatabase: options.readDatabase,
    schema,
    // Behind a pooler that cannot carry them every check would fail, rather than the one that is about them.
    preparedStatements: false,
    poolMax: DOCTOR_CONNECTIONS,
    applicationName: 'taskq doctor',
  });
  const checkMs = options.checkMs ?? DOCTOR_CHECK_MS;
  const examination = examinationOf(options, schema, lanes, checkMs);
  try {
    const unreachable = await reach(examination);
    if (unreachable !== undefined) return reportOf(schema, [unreachable]);
    const findings: Finding[] = [];
    // One after the other: together they would disturb what each other measures.
    for (const { id, group, examine } of checks)
      findings.push({ id, group, ...(await withinTime(examine(examination), checkMs)) });
    return reportOf(schema, findings);
  } finally {
    // A connection whose server has gone silent is given back by nobody.
    await Promise.race([lanes.close().catch(() => undefined), pause(CLOSE_WAIT_MS).ended]);
  }
}

function chosen(ids: DoctorOptions['checks']): readonly Check[] {
  if (ids === undefined) return CHECKS;
  const unknown = ids.find((id) => !CHECKS.some((check) => check.id === id));
  if (unknown !== undefined) {
    const all = CHECKS.map(({ id }) => id).join(', ');
    throw new TaskqError('OPTION_INVALID', `there is no check '${unknown}'; there are ${all}`);
  }
  return CHECKS.filter(({ id }) => ids.includes(id));
}

/** One for the check at work, one for a check that has outlasted its time. */
const DOCTOR_CONNECTIONS = 2;
const CLOSE_WAIT_MS = 1_000;

function examinationOf(options: DoctorOptions, schema: string, lanes: Lanes, checkMs: number): Examination {
  return {
    options,
    schema,
    leaseMarginMs: options.leaseMarginMs ?? LEASE_MARGIN_MS,
    retentionMs: options.retentionMs ?? RETENTION_MS_DEFAULT,
    oldTransactionMs: options.oldTransactionMs ?? DOCTOR_TRANSACTION_MS,
    clock: options.clock ?? systemClock,
    onPrimary: (look) => lookOnly(lanes.write, checkMs, ({ executor }) => look(writeLane(executor, schema))),
    onReadLane: (look) => lookOnly(lanes.read, checkMs, ({ executor }) => look(readLane(executor, schema))),
  };
}

async function reach({ onPrimary }: Examination): Promise<Finding | undefined> {
  try {
    await onPrimary(async () => undefined);
    return undefined;
  } catch (error) {
    const found = `the database cannot be reached: ${describeThrown(error).message}`;
    const remedy =
      'check DATABASE_URL, that the server runs, and that it lets this machine in (pg_hba.conf, firewall)';
    return { id: UNREACHABLE, group: 'connections', ...verdict('problem', found, remedy) };
  }
}

/** A check that fails or takes too long could not see, which says nothing about the queue. */
async function withinTime(examined: Promise<Verdict>, checkMs: number): Promise<Verdict> {
  // The server ends a statement at the limit, and its error says more than this one.
  const limit = pause(checkMs * 2);
  try {
    const found = await Promise.race([examined, limit.ended]);
    return found ?? verdict('unknown', `no answer within ${formatDuration(checkMs * 2)}`);
  } catch (error) {
    return verdict('unknown', `it could not be checked: ${describeThrown(error).message}`);
  } finally {
    limit.cancel();
    examined.catch(() => undefined);
  }
}

function pause(ms: number): { readonly ended: Promise<undefined>; cancel(): void } {
  const over = new AbortController();
  const ended = delay(ms, undefined, { signal: over.signal, ref: false }).catch(() => undefined);
  return { ended, cancel: () => over.abort() };
}

function reportOf(schema: string, findings: readonly Finding[]): DoctorReport {
  const counts = { problem: 0, warning: 0, unknown: 0, ok: 0 };
  for (const { status } of findings) counts[status] += 1;
  return { schema, counts, findings };
}

/** The table of all checks for the documentation, as Markdown. */
export function renderChecksTable(): string {
  const rows = CHECKS.map(({ id, group, describes }) => `| \`${id}\` | ${group} | ${describes} |`);
  return ['| check | group | what is looked at, and when it is said |', '| --- | --- | --- |', ...rows].join(
    '\n',
  );
}
