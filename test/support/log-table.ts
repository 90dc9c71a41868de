import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { QueueEvent } from '../../src/index.ts';
import { LEVELS, MESSAGES } from '../../src/logging/log-observer.ts';

// The table of docs/logging.md. Events, levels and messages are the code's; the compiler sees to it that each event and
// each of its fields has its words here.

type Kind = QueueEvent['kind'];
type FieldOf<K extends Kind> = Exclude<keyof Extract<QueueEvent, { kind: K }>, 'kind'>;

/** Stands on the line as five fields, which the page names once. */
const TASK = '(task)';
const ERROR = 'what was thrown';
const RETRY = 'when it is tried again, ms';
const TICK = 'the moment that the schedule names';

/** What the fields of each event say. */
const FIELDS: { readonly [K in Kind]: Readonly<Record<FieldOf<K>, string>> } = {
  claimed: {
    task: TASK,
    waitedMs: 'from when it was due to the claim',
    clockOffsetMs: 'database clock minus application clock',
  },
  settled: {
    task: TASK,
    outcome: '`success`, `failure`, `timeout`, `cancelled`, `continued` or `lost`',
    ranMs: 'of the handler; absent when it was not started',
    settleMs: 'from its return to the answer of the settlement',
    error: 'what went wrong; absent when nothing did',
    dead: 'it is a dead letter now',
  },
  slice_advanced_nothing: { task: TASK },
  slice_stopped_early: {
    task: TASK,
    on: '`page_read` or `page_work`',
    error: ERROR,
    fields: 'not under this name: `cursor`, `pages_read` and what the handler has added, such as `org_id`',
  },
  result_dropped: { task: TASK },
  handler_overrun: { task: TASK, overMs: 'past its deadline' },
  handler_abandoned: { task: TASK },
  settlement_retried: { task: TASK, error: ERROR, retryMs: RETRY },
  heartbeat_failed: { task: TASK, error: ERROR, retryMs: RETRY },
  lease_lost: { task: TASK, reason: 'refused, or not written in time' },
  middleware_failed: { task: TASK, error: ERROR },
  database_failed: { during: 'what was tried', error: ERROR, retryMs: RETRY },
  database_recovered: { during: 'what works again' },
  discovered: { candidates: 'ids found' },
  claim_answered: { claimed: 'rows', tookMs: 'from the asking to the answer' },
  claim_empty: { candidates: 'ids that were tried' },
  wake_received: {},
  listener_connected: { again: 'not for the first time' },
  listener_lost: { error: ERROR, retryMs: RETRY },
  clock_offset: { offsetMs: 'database clock minus application clock' },
  loop_delayed: { delayMs: 'for how long' },
  pruned: { deleted: 'dead letters', completed: 'records of finished tasks' },
  cron_looked: { nextMs: 'until it looks again' },
  cron_enqueued: {
    entry: 'its name',
    tick: TICK,
    taskId: 'of the task',
    lateMs: 'from the tick to its enqueue',
  },
  cron_skipped: { entry: 'its name', tick: TICK, taskId: 'of the task in the way' },
  cron_missed: {
    entry: 'its name',
    ticks: 'how many; the counting ends at 100',
    first: 'the first of them',
    last: 'the last',
  },
  cron_failed: { entry: 'its name', tick: TICK, error: ERROR, retryMs: RETRY },
  slot_failed: { error: ERROR },
  started: { slots: 'tasks at once', types: 'those that it runs' },
  stopping: {},
  stopped: {},
};

/** Not of the queue's own events: written by the app beside them. */
const OBSERVER_FAILED = `| \`observer_failed\` | error | an observer threw | \`error\`: ${ERROR} |`;

const DOCUMENT = fileURLToPath(new URL('../../docs/logging.md', import.meta.url));
const BLOCK = /<!-- events:begin -->\n[\s\S]*?<!-- events:end -->/;

/** The table of docs/logging.md, with its markers. */
export function renderLogTable(): string {
  const rows = (Object.keys(MESSAGES) as Kind[]).map((kind) => {
    const fields = Object.entries(FIELDS[kind]).map(([name, words]) =>
      words === TASK ? 'of the task' : `\`${name}\`: ${words}`,
    );
    return `| \`${kind}\` | ${levelOf(kind)} | ${MESSAGES[kind]} | ${fields.join('; ')} |`;
  });
  return [
    '<!-- events:begin -->',
    '| event | level | message | fields |',
    '| --- | --- | --- | --- |',
    ...rows,
    OBSERVER_FAILED,
    '<!-- events:end -->',
  ].join('\n');
}

/** By its outcome, of the one event that has no level of its own. */
function levelOf(kind: Kind): string {
  return kind === 'settled' ? 'info; warn: failure, timeout, lost; error: a dead letter' : LEVELS[kind];
}

export function logTableInDocument(): string | undefined {
  return BLOCK.exec(readFileSync(DOCUMENT, 'utf8'))?.[0];
}

/** Writes the table into docs/logging.md. */
export function writeLogTable(): void {
  const document = readFileSync(DOCUMENT, 'utf8');
  writeFileSync(
    DOCUMENT,
    document.replace(BLOCK, () => renderLogTable()),
  );
}
