import { setTimeout as delay } from 'node:timers/promises';
import type { Argv, CommandModule } from 'yargs';
import { formatDuration } from '../../src/domain/duration.ts';
import { STATS_INTERVAL_MS } from '../../src/domain/limits.ts';
import type { PausedQueue, TaskCounts } from '../../src/operator.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { oneLine } from '../failure.ts';
import { print } from '../output.ts';
import { printTable } from '../print-table.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';

interface StatsArguments extends Connection {
  json: boolean;
  watch: boolean;
}

/** `taskq stats`: what the queue holds, by type and queue. */
export const stats: CommandModule<GlobalArguments, GlobalArguments & StatsArguments> = {
  command: 'stats',
  describe: 'count the tasks by type and queue',
  builder: statsOptions,
  handler: async (argv) => {
    await withOperator(argv, async (operator) => {
      const closed = outputClosed();
      do {
        const counts = await operator.stats();
        const paused = argv.json ? [] : await operator.pausedQueues();
        if (argv.watch && !argv.json && process.stdout.isTTY) print(CLEAR_SCREEN);
        if (argv.json) print(JSON.stringify(counts));
        else printCounts(counts);
        if (!argv.json) for (const line of progressLines(counts)) print(line);
        if (paused.length > 0) print(describePaused(paused));
        if (argv.watch) await delay(STATS_INTERVAL_MS, undefined, { signal: closed }).catch(() => undefined);
      } while (argv.watch && !closed.aborted);
    });
  },
};

const CLEAR_SCREEN = '\u001b[2J\u001b[H';

function statsOptions(yargs: Argv<GlobalArguments>): Argv<GlobalArguments & StatsArguments> {
  const withOptions = yargs
    .option('json', { type: 'boolean', default: false, describe: 'print one JSON array' })
    .option('watch', {
      type: 'boolean',
      default: false,
      describe: `print again every ${formatDuration(STATS_INTERVAL_MS)}, until Ctrl-C`,
    });
  return settingOptions(withOptions, CONNECTION_SETTINGS) as unknown as Argv<
    GlobalArguments & StatsArguments
  >;
}

function printCounts(counts: readonly TaskCounts[]): void {
  if (counts.length === 0) {
    print('no tasks');
    return;
  }
  const numbers = ['pending', 'running', 'due', 'scheduled', 'retrying', 'dead', 'completed'] as const;
  printTable(
    ['type', 'queue', ...numbers, 'oldest due'],
    counts.map((count) => [
      count.type,
      count.queue,
      ...numbers.map((number) => String(count[number])),
      count.due === 0 ? '-' : formatDuration(count.oldestDueSeconds * 1_000),
    ]),
    { alignRight: numbers },
  );
}

/** Of the types whose slices say how far they are. */
function progressLines(counts: readonly TaskCounts[]): string[] {
  return counts.flatMap(({ type, queue, progress }) => {
    if (progress === undefined) return [];
    const { tasks, done, total } = progress;
    const of = total === undefined ? '' : ` of ${total}`;
    return [
      `progress: ${oneLine(type)} in ${oneLine(queue)}: ${done}${of} (${tasks === 1 ? '1 task' : `${tasks} tasks`})`,
    ];
  });
}

function describePaused(paused: readonly PausedQueue[]): string {
  const each = paused.map(({ queue, pausedAt }) => `${oneLine(queue)} (since ${pausedAt.toISOString()})`);
  return `paused: ${each.join(', ')}`;
}

/** Aborts when nobody reads the output any more (`taskq stats --watch | head`). */
function outputClosed(): AbortSignal {
  const closed = new AbortController();
  process.stdout.once('error', () => closed.abort());
  return closed.signal;
}
