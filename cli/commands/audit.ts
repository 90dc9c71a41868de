import type { Argv, CommandModule } from 'yargs';
import { TaskqError } from '../../src/domain/errors.ts';
import { AUDIT_PAGE_DEFAULT, AUDIT_PAGE_MAX } from '../../src/domain/limits.ts';
import { type AuditRecord, parseTaskId } from '../../src/operator.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { print, say } from '../output.ts';
import { printTable } from '../print-table.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';

interface AuditArguments extends Connection {
  limit: number;
  before: string | undefined;
  subject: string | undefined;
  by: string | undefined;
  action: string | undefined;
  json: boolean;
}

/** `taskq audit`: who did what by hand. */
export const audit: CommandModule<GlobalArguments, GlobalArguments & AuditArguments> = {
  command: 'audit',
  describe: 'list who did what by hand, newest first',
  builder: auditOptions,
  handler: async (argv) => {
    const { subject, action } = argv;
    const limit = checkLimit(argv.limit);
    const before = argv.before === undefined ? undefined : checkId(argv.before);
    const records = await withOperator(argv, (operator) =>
      operator.listAudit({ limit, before, subject, action, actor: argv.by }),
    );
    if (argv.json) print(JSON.stringify(records));
    else printRecords(records, limit);
  },
};

function auditOptions(yargs: Argv<GlobalArguments>): Argv<GlobalArguments & AuditArguments> {
  const text = (describe: string) => ({ type: 'string', requiresArg: true, describe }) as const;
  const withOptions = yargs
    .option('limit', {
      type: 'number',
      requiresArg: true,
      default: AUDIT_PAGE_DEFAULT,
      describe: `how many, 1 to ${AUDIT_PAGE_MAX}`,
    })
    .option('before', text('only those with a smaller id: the next page'))
    .option('subject', text('only of this task, queue or cron entry'))
    .option('by', text('only of this actor'))
    .option('action', text("only of this kind: 'dead.replay'"))
    .option('json', { type: 'boolean', default: false, describe: 'print one JSON array' });
  return settingOptions(withOptions, CONNECTION_SETTINGS) as unknown as Argv<
    GlobalArguments & AuditArguments
  >;
}

function checkLimit(limit: number): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= AUDIT_PAGE_MAX) return limit;
  throw new TaskqError('OPTION_INVALID', `--limit: expected a whole number from 1 to ${AUDIT_PAGE_MAX}`);
}

/** An id of the audit is made as a task's is. */
function checkId(text: string): string {
  const id = parseTaskId(text);
  if (id !== undefined) return id;
  throw new TaskqError('OPTION_INVALID', `--before: '${text}' is no id: expected a whole number from 1 on`);
}

/** The ids last: of two hundred, the rest would be out of sight. */
function describeDetail({ ids, ...rest }: AuditRecord['detail']): string {
  return JSON.stringify({ ...rest, ids });
}

function printRecords(records: readonly AuditRecord[], limit: number): void {
  if (records.length === 0) {
    print('nothing was done by hand');
    return;
  }
  printTable(
    ['id', 'at', 'actor', 'action', 'subject', 'detail'],
    records.map(({ id, at, actor, action, subject, detail }) => [
      id,
      at.toISOString(),
      actor,
      action,
      subject ?? '-',
      describeDetail(detail),
    ]),
  );
  if (records.length === limit) say(`more with --before ${records.at(-1)?.id}`);
}
