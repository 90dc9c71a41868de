import assert from 'node:assert/strict';

// The numbers of the design, each with its unit and its reason. The relations between them
// are asserted below, when the module loads, so that a changed number cannot break one unseen.

/** Worker slots of a replica. */
export const SLOTS_DEFAULT = 4;
/** More than this in one process is a mistake of unit: the event loop is the bottleneck long before. */
export const SLOTS_MAX = 1_000;

/** Candidate ids of each queue in one discover, unless more slots than this are waiting. */
export const DISCOVER_LIMIT = 20;
/** Queues that are read to the limit in one discover. Of more queues than this, each gives fewer candidates. */
export const QUEUES_OF_A_LOOK = 8;
/** A look at what is new reaches back this far: a transaction that enqueues may have begun a while before its commit. */
export const RECENT_MS = 2_000;

/** A queue's share of the claims beside the others', unless somebody says otherwise. */
export const QUEUE_WEIGHT_DEFAULT = 1;
export const QUEUE_WEIGHT_MAX = 1_000;

/** Runs of a task, the first one included. */
export const MAX_ATTEMPTS_DEFAULT = 20;
export const MAX_ATTEMPTS_MAX = 1_000;

/** Wait after the first failure; doubled after each further one. */
export const BACKOFF_FIRST_MS = 15_000;
/** Where the doubling ends. */
export const BACKOFF_MAX_MS = 600_000;

/** A hung handler must have stopped this long before its row can be claimed again; clock skew is milliseconds. */
export const LEASE_MARGIN_MS = 30_000;
/** Below this the margin no longer covers a handler's unwinding and a settlement's round trip. */
export const LEASE_MARGIN_MS_MIN = 1_000;
/** A crashed worker's task waits for the margin too; an hour of it is a mistake of unit. */
export const LEASE_MARGIN_MS_MAX = 3_600_000;

/** The shortest useful ceiling. A ceiling is ten times the expected worst case, never a budget. */
export const CEILING_MS_MIN = 1_000;
export const CEILING_MS_MAX = 365 * 86_400_000;

/** The backstop: one idle slot looks again this often, jittered between replicas. */
export const POLL_INTERVAL_MS = 5_000;
/** Below this, idle replicas are a load on the database. */
export const POLL_INTERVAL_MS_MIN = 100;
/** Above this the backstop is none. */
export const POLL_INTERVAL_MS_MAX = 3_600_000;
/** Share of the poll interval by which replicas are spread. */
export const POLL_JITTER = 0.1;

/** A running handler's deadline is looked at again this often, so that a suspended machine is noticed. */
export const DEADLINE_CHECK_MS = 5_000;

/** What a slice's budget leaves before the deadline for saving the cursor: some tries, if the database is slow. */
export const SLICE_RESERVE_MS = 5_000;
/** With a short ceiling, this share of it: five seconds would be most of the slice, or more than all of it. */
export const SLICE_RESERVE_SHARE = 0.1;
/** One slice of a walk through pages: long enough that its claim and cursor cost nothing, short for whoever waits. */
export const SLICE_BUDGET_MS_DEFAULT = 120_000;

/** A type's heartbeat, when it has one. Shorter ones cost more than they save. */
export const HEARTBEAT_MS_MIN = 1_000;
/** Beats a lease outlives: one may be lost, and one is left for the handler to stop in. */
export const HEARTBEATS_OF_A_LEASE = 3;

/** Node fires a timer longer than this at once. */
export const TIMER_MS_MAX = 2_147_483_647;

/** How long a statement may take before its connection is given up as poisoned. */
export const STATEMENT_TIMEOUT_MS = 30_000;
export const CONNECT_TIMEOUT_MS = 10_000;
/** Connections of each lane. Settlements share statements, so a few serve many slots. */
export const POOL_MAX_DEFAULT = 4;

/** Retries of a statement the database could not take: first wait and longest. */
export const RETRY_FIRST_MS = 100;
export const RETRY_MAX_MS = 5_000;

/** How often a statement that lost to a concurrent one is tried again at once: each loss means that another won. */
export const CONFLICT_RETRIES_MAX = 5;

/** The listener proves its connection alive this often. */
export const LISTENER_HEARTBEAT_MS = 60_000;
export const LISTENER_ANSWER_MS = 5_000;

/** After the abort at shutdown, how long handlers may take to return before their leases are left to lapse. */
export const SHUTDOWN_ABORT_WAIT_MS = 5_000;
/** No orchestrator waits a day for a process to end. */
export const SHUTDOWN_GRACE_MS_MAX = 86_400_000;
/** After a worker has stopped, what its handlers' libraries keep open may hold the process this long. */
export const EXIT_WAIT_MS = 1_000;
/** npm passes on a Ctrl-C that the process has had from the terminal: a signal this soon after itself is its echo. */
export const SIGNAL_ECHO_MS = 250;
/** How often `taskq stats --watch` reads the counts. */
export const STATS_INTERVAL_MS = 2_000;

/** After its signal has aborted, how long a handler in a thread of its own may take to return before that is ended. */
export const THREAD_UNWIND_MS = 500;
/** How long ending a thread and settling its task may take at the very end of a shutdown. */
export const THREAD_EXIT_MS_MAX = 1_000;

/** A loop that was blocked this long has made the replica miss wakes; it is said. */
export const LOOP_DELAY_WARN_MS = 1_000;

/** The application's clock may differ from the database's by this much before it is said. */
export const CLOCK_OFFSET_WARN_MS = 3_000;

/** The database gauges are read at most this often by a process, however many scrape it. */
export const GAUGE_INTERVAL_MS = 15_000;
/** Below this the gauges are a load on the database; above the upper bound they say nothing of now. */
export const GAUGE_INTERVAL_MS_MIN = 1_000;
export const GAUGE_INTERVAL_MS_MAX = 3_600_000;
/** A scrape waits no longer for the database: Prometheus gives one up after 10 s. */
export const GAUGE_READ_MS_MAX = 2_000;
/** Due tasks that are counted in each queue, and delayed ones again: reading so many takes some 50 ms. */
export const GAUGE_LIVE_ROWS_MAX = 50_000;
/** Dead letters that are counted of each type and queue, in the index alone once vacuum has been there. */
export const GAUGE_DEAD_ROWS_MAX = 10_000;
/** The newest of them, among which those that run for the last time are looked for: as many as the most slots. */
export const GAUGE_LAST_ATTEMPTS_MAX = 1_000;
/** Records that are counted of each type and queue, in the index alone. */
export const GAUGE_COMPLETED_ROWS_MAX = 50_000;
/** Queues, and pairs of a type and a queue, that one read of the gauges looks at. */
export const GAUGE_GROUPS_MAX = 1_000;
/** Rows of the answer: types, queues and revisions of what is unfinished. Beyond it the smallest are left out. */
export const GAUGE_ANSWER_ROWS_MAX = 10_000;
/** Names that are not registered and get a label of their own; those beyond are one, called other. */
export const LABEL_VALUES_MAX = 100;
/** How far back the longest block of the event loop is remembered: several scrapes, by whoever scrapes. */
export const LOOP_DELAY_WINDOW_MS = 60_000;
/** The port of `taskq metrics` unless it is given; Prometheus has no other exporter on it by default. */
export const METRICS_PORT_DEFAULT = 9_464;

/** Dead letters are kept this long after their last attempt. */
export const RETENTION_MS_DEFAULT = 7 * 86_400_000;
/** The shortest life of a finished task's record: below it nobody could have looked. */
export const RECORD_RETENTION_MS_MIN = 1_000;
/** A century, the longest duration there is: with more, written by hand, a timestamp would overflow. */
export const RECORD_RETENTION_MS_MAX = 100 * 365 * 86_400_000;
/** What a handler may leave in the record: an answer to look at, not a place to keep data. */
export const RESULT_BYTES_MAX = 65_536;
export const PRUNE_INTERVAL_MS = 3_600_000;
/** Dead letters of one page, unless asked otherwise, and at the most: a page is read by a person. */
export const DEAD_PAGE_DEFAULT = 50;
export const DEAD_PAGE_MAX = 200;
/** Dead letters that one statement of a bulk replay looks through, whatever its filter matches: some 40 ms. */
export const DEAD_SCAN = 2_000;
/** Dead letters that one transaction replays or drops: short locks, and an audit row that a person can read. */
export const DEAD_BATCH_MAX = 200;
/** A bulk replay waits this long for a unique key that an enqueuer has locked, far less than a deadlock is looked for. */
export const DEAD_KEY_WAIT_MS = 100;
/** What a dry run tells apart: kinds of error that are listed, those that are counted, and how much of each is shown. */
export const DEAD_GROUPS_SHOWN = 20;
export const DEAD_GROUPS_MAX = 1_000;
export const DEAD_GROUP_ERROR_LENGTH_MAX = 120;
/** Who did what is kept for a year: longer than the deeds of an incident are asked about. */
export const AUDIT_RETENTION_MS = 365 * 86_400_000;
/** Deeds of one page, unless asked otherwise, and at the most: a page is read by a person. */
export const AUDIT_PAGE_DEFAULT = 50;
export const AUDIT_PAGE_MAX = 200;
/** Rows of one page of the admin API, unless asked otherwise, and at the most. */
export const ADMIN_PAGE_DEFAULT = 50;
export const ADMIN_PAGE_MAX = 200;
/** Totals are counted up to here, then it is "more than": some 10 ms of an index. */
export const ADMIN_COUNT_MAX = 10_000;
/** Rows that one statement of a filtered list looks through, and statements of one page: some 100 ms in all. */
export const ADMIN_SCAN = 2_000;
export const ADMIN_SCANS_MAX = 5;
/** A page that takes longer is given up by the server: whoever asked sees an error, not a wait. */
export const ADMIN_READ_MS_MAX = 5_000;
/** Queues that a list over all of them walks through for one page; with more it goes on at the next page. */
export const ADMIN_QUEUES_OF_A_PAGE = 20;
/** A list shows a payload up to here; of two hundred tasks more would be a heavy page. The task's own has it whole. */
export const ADMIN_PAYLOAD_SHOWN_BYTES_MAX = 16_384;
/** The largest body that the admin API reads: a filter is a few hundred bytes. */
export const ADMIN_BODY_BYTES_MAX = 65_536;
/** A shorter token could be guessed by trying. */
export const ADMIN_TOKEN_LENGTH_MIN = 16;
/** Where no usual server listens. */
export const ADMIN_PORT_DEFAULT = 9_465;
/** A session of the dashboard ends this long after its login, and after so long without a request. */
export const ADMIN_SESSION_MS = 12 * 3_600_000;
export const ADMIN_SESSION_IDLE_MS = 2 * 3_600_000;
/** Sessions at once; the oldest gives way. */
export const ADMIN_SESSIONS_MAX = 1_000;
/** A link with a one-time token works this long. */
export const ADMIN_ONCE_MS = 15 * 60_000;
/** Wrong tokens within the window before an address, or everybody, has to wait for its end. */
export const ADMIN_FAILURES_WINDOW_MS = 5 * 60_000;
export const ADMIN_FAILURES_OF_ADDRESS_MAX = 10;
export const ADMIN_FAILURES_MAX = 100;
/** Addresses whose failures are remembered; beyond, the bound for everybody stands alone. */
export const ADMIN_ADDRESSES_MAX = 10_000;
/** How often the one reader behind the server-sent events reads, while somebody listens. */
export const ADMIN_EVENTS_INTERVAL_MS = 2_000;
/** What the reader reads may take a tenth of the time and no more: with long queues it reads less often. */
export const ADMIN_EVENTS_REST_FACTOR = 10;
/** An overview this fresh answers whoever asks next. */
export const ADMIN_OVERVIEW_FRESH_MS = 1_000;
/** A stream ends after this and its browser opens the next one, which must be admitted anew. */
export const ADMIN_STREAM_MS = 15 * 60_000;
/** Events that a stream holds for a slow client before it is ended: the next stream begins with the newest. */
export const ADMIN_STREAM_BACKLOG_MAX = 16;
/** Open event streams at once: each holds a socket. */
export const ADMIN_STREAMS_MAX = 100;
/** Bulk operations at once, and those that have ended and can still be asked about. */
export const ADMIN_OPERATIONS_RUNNING_MAX = 4;
export const ADMIN_OPERATIONS_KEPT_MAX = 100;
/** A bulk operation that is over within this time is answered whole, for whoever asks by hand. */
export const ADMIN_OPERATION_WAIT_MS = 1_000;

/** A replica says this often that it is alive: one update of a small row. */
export const REPLICA_REPORT_MS = 15_000;
/** It counts as alive for three of its reports: one may be lost, and one late. */
export const REPLICA_ALIVE_MS = 3 * REPLICA_REPORT_MS;
/** A replica that has not been seen for a day is forgotten. */
export const REPLICA_KEPT_MS = 86_400_000;
/** Running tasks that a report names; a replica of thousands of slots must not write a megabyte. */
export const REPLICA_RUNNING_MAX = 100;

/** Rows of one prune statement: short locks, small transactions. */
export const PRUNE_BATCH = 1_000;

/** The interval of `@every`: a task and a row of ticks a second is the most a scheduler is for, and beyond a year is cron text. */
export const SCHEDULE_EVERY_MS_MIN = 1_000;
export const SCHEDULE_EVERY_MS_MAX = 366 * 86_400_000;

/** Keys that one prune statement looks through: some 40 ms of index probes, and as many short locks at the most. */
export const KEY_PRUNE_SCAN = 5_000;
/** A key stays this long after its last use: one that comes again soon is cheaper kept than made anew. */
export const KEY_UNUSED_MS = 3_600_000;

export const PAYLOAD_BYTES_MAX_DEFAULT = 1_048_576;
/** jsonb itself ends at 256 MB. */
export const PAYLOAD_BYTES_MAX = 200 * 1_048_576;

/** Rows and bytes that `taskq check-payloads` holds at once: a page is read ahead of nothing and then let go. */
export const CHECK_PAGE_ROWS = 500;
export const CHECK_PAGE_BYTES = 8 * 1_048_576;
/** Poison rows that are described for each type and revision: they fail alike, and a person reads them. */
export const CHECK_EXAMPLES_MAX = 3;
/** Rows between two lines of progress: a hundred lines for a million rows. */
export const CHECK_PROGRESS_ROWS = 10_000;

/** Containers inside one another: every parser on the way recurses, and PostgreSQL's own ends at some thousands. */
export const PAYLOAD_DEPTH_MAX = 500;

/** Rows and bytes of one bulk insert statement. */
export const ENQUEUE_BATCH_ROWS = 1_000;
export const ENQUEUE_BATCH_BYTES = 8 * 1_048_576;

/** Names of task types and queues: long enough for namespaces, short enough for a metric label. */
export const NAME_LENGTH_MAX = 200;

/** Failures kept on a row; older ones give way. */
export const ERROR_HISTORY_MAX = 20;
export const ERROR_MESSAGE_LENGTH_MAX = 2_000;
export const ERROR_STACK_LENGTH_MAX = 4_000;
/** Errors looked at behind one that was thrown: its causes, theirs, and the members of an AggregateError. */
export const CAUSE_CHAIN_MAX = 20;

/** A unix socket's path ends at 107 bytes on Linux and at 103 on macOS; PostgreSQL refuses a longer one. */
export const SOCKET_PATH_BYTES_MAX = 103;
/** Crash recovery of a big embedded cluster is slow; a server that is not up by then never will be. */
export const EMBEDDED_START_MS_MAX = 120_000;
/** How long the embedded server may take for each step of stopping: politely, at once, by force. */
export const EMBEDDED_STOP_STEP_MS = 10_000;
/** A server whose owner has just died is given this long to let go of a kept data directory. */
export const EMBEDDED_HANDOVER_MS = 2_000;
/** A leftover younger than this may belong to a process that this one cannot see (another container). */
export const EMBEDDED_LEFTOVER_AGE_MS = 60_000;

/** A migration waits this long for a lock on a table, then gives up: everybody else queues behind its wait. */
export const MIGRATION_LOCK_TIMEOUT_MS = 5_000;
/** The server looks this often whether the process whose migration it runs is still there. */
export const MIGRATION_CLIENT_CHECK_MS = 1_000;
/** A migration waits this long for another one of the same schema; ten replicas that start together take turns. */
export const MIGRATION_TURN_WAIT_MS = 30_000;

/** A scheduler asks the database for the time this often at the least, so that a suspended machine is noticed. */
export const CRON_RESYNC_MS = 60_000;
/** A tick that is looked at this late is still on time: a deploy, a failover and a short outage fit in. */
export const CRON_LATE_MS_MAX = 60_000;
/** Whoever takes a tick holds its row for a few round trips; one that hangs must not keep the other entries waiting. */
export const CRON_LOCK_WAIT_MS = 2_000;
/** A replica that stands still with a tick in its hands (a stopped process, a frozen machine) gives it back after this. */
export const CRON_IDLE_MS = 5_000;
/** The most missed ticks of an entry that are made up for: a thousand tasks at once is a burst that somebody chose. */
export const CRON_MISSED_ALL_MAX = 1_000;
/** Missed ticks are counted up to here, then it is "at least": walking through a year of seconds would block the loop. */
export const CRON_MISSED_COUNT_MAX = 100;
/** A replica looks for its newest tick this far back, past those of another version's schedule during a rollout. */
export const CRON_NEWEST_SCAN = 1_000;
/** Ticks are kept this long, so that an operator sees what ran; the newest of an entry stays for the scheduler. */
export const CRON_TICKS_KEPT_MS = 30 * 86_400_000;
/** An entry without a tick for this long was removed from the list; a yearly one has its last tick until the next. */
export const CRON_ENTRY_KEPT_MS = 400 * 86_400_000;

/** A check of `taskq doctor` that has no answer by then is unknown: whoever runs it waits at the screen. */
export const DOCTOR_CHECK_MS = 5_000;
/** A notification that has not come by then does not come: it takes milliseconds. */
export const DOCTOR_NOTIFY_WAIT_MS = 2_000;
/** Round trips by which the clock offset is measured; the fastest one says it best. */
export const DOCTOR_CLOCK_SAMPLES = 5;
/** A transaction this old keeps vacuum from what was settled since: discovery walks over it. At twelve times, a problem. */
export const DOCTOR_TRANSACTION_MS = 300_000;
export const DOCTOR_TRANSACTION_PROBLEM_FACTOR = 12;
/** What has no age in time (a replication slot) is judged by the transactions begun since: some minutes of a busy server. */
export const DOCTOR_TRANSACTIONS_BEHIND = 1_000_000;
/** Dead rows of a table, in units of what lets autovacuum begin: it is late at 5, and does not come at 50. */
export const DOCTOR_DEAD_ROWS_WARN = 5;
export const DOCTOR_DEAD_ROWS_PROBLEM = 50;
/** Pages below which reading a whole table is no mistake of the planner's. */
export const DOCTOR_SMALL_TABLE_PAGES = 1_000;
/** Shares of the connections in use. */
export const DOCTOR_CONNECTIONS_WARN = 0.8;
export const DOCTOR_CONNECTIONS_PROBLEM = 0.95;
/** A limit on statements, locks or transactions that is shorter cuts what the queue does in ordinary operation. */
export const DOCTOR_TIMEOUT_MS_MIN = 1_000;
/** How long the read replica is given to show what the primary had when the check began. */
export const DOCTOR_LAG_WAIT_MS = 2_000;
export const DOCTOR_LAG_LOOK_MS = 50;
/** A due task waits this long without anybody being to blame: a deploy, a burst. */
export const DOCTOR_BACKLOG_MS = 600_000;
/** A lease that has lapsed is taken over within a poll, unless nobody serves its queue or type. At twelve times, a problem. */
export const DOCTOR_ORPHAN_MS = 300_000;
export const DOCTOR_ORPHAN_PROBLEM_FACTOR = 12;
/** A lease longer than this was stamped by nobody's ceiling, where the ceiling is not known. */
export const DOCTOR_LEASE_MS_MAX = 86_400_000;
/** The newest records by which runs are measured: some 50 ms, and a day's work of a busy queue. */
export const DOCTOR_RECORDS_MAX = 10_000;
/** Runs of a type below which its 99th percentile is chance. */
export const DOCTOR_RUNS_MIN = 20;
/** A ceiling is about ten times the worst case: at half of that it is tight, at twice the worst case it cuts work. */
export const DOCTOR_CEILING_RATIO = 10;
export const DOCTOR_CEILING_RATIO_WARN = 5;
export const DOCTOR_CEILING_RATIO_PROBLEM = 2;
/** Dead letters of the last day are news. */
export const DOCTOR_DEAD_NEWS_MS = 86_400_000;
/** A prune comes once an hour; what is this much past its time was missed twice. */
export const DOCTOR_PRUNE_LATE_MS = 2 * 3_600_000;
/** Of many alike, so many are named. */
export const DOCTOR_NAMED_MAX = 5;

/** A shorter value of a secret field is not looked for in messages: it would hide every 1 in them. */
export const SECRET_LENGTH_MIN = 4;
/** A longer one is known by so much of its beginning, since whoever quotes it may have cut it. */
export const SECRET_PREFIX_LENGTH = 16;

/** Runs of one drain in a test, unless it asks for more: a handler that enqueues itself must not hang the test. */
export const DRAIN_TASKS_MAX_DEFAULT = 1_000;

assert(POLL_INTERVAL_MS >= CEILING_MS_MIN, 'a poll is the coarser of the two');
assert(DEADLINE_CHECK_MS * 2 < LEASE_MARGIN_MS, 'a suspended machine is noticed within the margin');
assert(CLOCK_OFFSET_WARN_MS < LEASE_MARGIN_MS, 'the offset is said long before it matters');
assert(THREAD_UNWIND_MS < LEASE_MARGIN_MS_MIN, 'a thread has ended before its row can be claimed again');
assert(BACKOFF_FIRST_MS < BACKOFF_MAX_MS);
assert(RETRY_MAX_MS < LEASE_MARGIN_MS, 'a settlement is tried more than once while the margin runs');
assert(
  CRON_LOCK_WAIT_MS + CRON_IDLE_MS < CRON_LATE_MS_MAX,
  'a tick that is given back is on time for another',
);
assert(
  CRON_LOCK_WAIT_MS < STATEMENT_TIMEOUT_MS,
  'the wait for a tick ends before its connection is given up',
);
assert(CRON_RESYNC_MS <= CRON_LATE_MS_MAX, 'a tick that a sleeping scheduler wakes up to is on time');
