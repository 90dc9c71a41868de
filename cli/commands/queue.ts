import type { Argv, CommandModule } from 'yargs';
import { formatDuration } from '../../src/domain/duration.ts';
import { TaskqError } from '../../src/domain/errors.ts';
import { QUEUE_WEIGHT_MAX } from '../../src/domain/limits.ts';
import type { QueueState } from '../../src/operator.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { oneLine } from '../failure.ts';
import { print, say } from '../output.ts';
import { printTable } from '../print-table.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';

type Command<Own> = CommandModule<GlobalArguments, GlobalArguments & Connection & Own>;

const list: Command<{ json: boolean }> = {
  command: 'list',
  describe: 'list the queues, with their weights and what they hold',
  builder: (yargs) =>
    options(yargs.option('json', { type: 'boolean', default: false, describe: 'print one JSON array' })),
  handler: async (argv) => {
    const queues = await withOperator(argv, (operator) => operator.listQueues());
    if (argv.json) print(JSON.stringify(queues.map(toJson)));
    else printQueues(queues);
  },
};

const pause: Command<{ queue: string }> = {
  command: 'pause <queue>',
  describe: 'let no worker take a task from the queue until it is resumed; what runs, runs on',
  builder: (yargs) => options(queuePositional(yargs)),
  handler: async (argv) => {
    const { queue } = argv;
    const paused = await withOperator(argv, (operator) => operator.pauseQueue(queue));
    const { changed, pausedAt, hasTask } = paused;
    print(
      changed
        ? `paused ${oneLine(queue)}`
        : `${oneLine(queue)} is paused already, since ${pausedAt.toISOString()}`,
    );
    if (!hasTask) say(`taskq: queue ${oneLine(queue)} has no task that waits or runs: is that its name?`);
  },
};

const resume: Command<{ queue: string }> = {
  command: 'resume <queue>',
  describe: 'let workers take tasks from the queue again',
  builder: (yargs) => options(queuePositional(yargs)),
  handler: async (argv) => {
    const { queue } = argv;
    const pausedAt = await withOperator(argv, (operator) => operator.resumeQueue(queue));
    print(
      pausedAt === undefined
        ? `${oneLine(queue)} is not paused`
        : `resumed ${oneLine(queue)}, paused since ${pausedAt.toISOString()}`,
    );
  },
};

const weight: Command<{ queue: string; weight: string }> = {
  command: 'weight <queue> <weight>',
  describe: 'set the share of the queue beside the others in every worker',
  builder: (yargs) =>
    options(
      queuePositional(yargs).positional('weight', {
        type: 'string',
        demandOption: true,
        describe: `1 to ${QUEUE_WEIGHT_MAX}, or default for what the workers are configured with`,
      }),
    ),
  handler: async (argv) => {
    const { queue } = argv;
    const wanted = toWeight(argv.weight);
    const { changed, before } = await withOperator(argv, (operator) =>
      operator.setQueueWeight(queue, wanted),
    );
    const [was, is] = [before ?? 'default', wanted ?? 'default'];
    print(
      changed
        ? `weight of ${oneLine(queue)}: ${is}, was ${was}`
        : `weight of ${oneLine(queue)} is ${is} already`,
    );
  },
};

/** `taskq queue list|pause|resume|weight`. */
export const queue: CommandModule<GlobalArguments, GlobalArguments> = {
  command: 'queue',
  describe: 'look at, pause, resume or weigh queues',
  builder: (yargs) =>
    yargs
      .command(list)
      .command(pause)
      .command(resume)
      .command(weight)
      .demandCommand(1, 'say what to do with queues'),
  handler: () => undefined,
};

function options<Given>(yargs: Argv<Given>): Argv<Given & Connection> {
  return settingOptions(yargs, CONNECTION_SETTINGS) as unknown as Argv<Given & Connection>;
}

function queuePositional(yargs: Argv<GlobalArguments>): Argv<GlobalArguments & { queue: string }> {
  return yargs.positional('queue', { type: 'string', demandOption: true, describe: 'its name' });
}

function toWeight(text: string): number | undefined {
  if (text === 'default') return undefined;
  if (/^\d{1,4}$/.test(text)) return Number(text);
  throw new TaskqError(
    'OPTION_INVALID',
    `weight: expected a whole number from 1 to ${QUEUE_WEIGHT_MAX}, or default, received '${text}'`,
  );
}

function toJson(queue: QueueState): object {
  return { ...queue, weight: queue.weight ?? null, pausedAt: queue.pausedAt ?? null };
}

function printQueues(queues: readonly QueueState[]): void {
  if (queues.length === 0) {
    print('no queues: there is no task, and no queue was paused or given a weight');
    return;
  }
  const numbers = ['pending', 'due', 'running', 'dead'] as const;
  printTable(
    ['queue', 'weight', 'paused since', ...numbers, 'oldest due'],
    queues.map((state) => [
      state.queue,
      String(state.weight ?? '-'),
      state.pausedAt?.toISOString() ?? '-',
      ...numbers.map((number) => String(state[number])),
      state.due === 0 ? '-' : formatDuration(state.oldestDueSeconds * 1_000),
    ]),
    { alignRight: ['weight', ...numbers] },
  );
}
