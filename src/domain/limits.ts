import assert from 'node:assert/strict';

// The numbers of the design, each with its unit and its reason. The relations between them
// are asserted below, when the module loads, so that a changed number cannot break one unseen.

/** Worker slots of a replica. */
export const SLOTS_DEFAULT = 4;
/** More than this in one process is a mistake of unit: the event loop is the bottleneck long before. */
export const SLOTS_MAX = 1_000;

/** Candidate ids of one discover, unless more slots than this are waiting. */
export const DISCOVER_LIMIT = 20;

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

/** Dead letters are kept this long after their last attempt. */
export const RETENTION_MS_DEFAULT = 7 * 86_400_000;
export const PRUNE_INTERVAL_MS = 3_600_000;
/** Dead letters of one page, unless asked otherwise, and at the most: a page is read by a person. */
export const DEAD_PAGE_DEFAULT = 50;
export const DEAD_PAGE_MAX = 200;
/** Rows of one prune statement: short locks, small transactions. */
export const PRUNE_BATCH = 1_000;

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

/** Runs of one drain in a test, unless it asks for more: a handler that enqueues itself must not hang the test. */
export const DRAIN_TASKS_MAX_DEFAULT = 1_000;

assert(POLL_INTERVAL_MS >= CEILING_MS_MIN, 'a poll is the coarser of the two');
assert(DEADLINE_CHECK_MS * 2 < LEASE_MARGIN_MS, 'a suspended machine is noticed within the margin');
assert(CLOCK_OFFSET_WARN_MS < LEASE_MARGIN_MS, 'the offset is said long before it matters');
assert(THREAD_UNWIND_MS < LEASE_MARGIN_MS_MIN, 'a thread has ended before its row can be claimed again');
assert(BACKOFF_FIRST_MS < BACKOFF_MAX_MS);
assert(RETRY_MAX_MS < LEASE_MARGIN_MS, 'a settlement is tried more than once while the margin runs');
