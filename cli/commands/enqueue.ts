import { text as readAll } from 'node:stream/consumers';
import type { ArgumentsCamelCase, Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import type { Duration } from '../../src/domain/duration.ts';
import { TaskqError } from '../../src/domain/errors.ts';
import type { EnqueueOptions } from '../../src/enqueue.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { enqueuableTasks } from '../enqueuable-tasks.ts';
import { print, say } from '../output.ts';
import { parsePayload } from '../payload-argument.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';

interface EnqueueArguments extends Connection, Pick<Config, 'definitions' | 'out' | 'maxPayloadBytes'> {
  type: string;
  json: string;
  tasks: string | undefined;
  delay: string | undefined;
  runAt: string | undefined;
  queue: string | undefined;
  maxAttempts: number | undefined;
  timeout: string | undefined;
  retention: string | undefined;
  force: boolean;
}

/** `taskq enqueue <type> <json>`: the id on stdout, of the new task or of the one that is in its way. */
export const enqueue: CommandModule<GlobalArguments, GlobalArguments & EnqueueArguments> = {
  command: 'enqueue <type> <json>',
  describe: 'enqueue one task, its payload checked as the code would check it',
  builder: enqueueOptions,
  handler: async (argv) => {
    const tasks = await enqueuableTasks({ ...argv, cwd: argv.surroundings.cwd });
    const payload = parsePayload(await payloadText(argv));
    const options = { ...toOptions(argv), maxPayloadBytes: argv.maxPayloadBytes };
    const { type } = argv;
    const { id, status } = await withOperator(argv, (operator) =>
      operator.enqueue(tasks, { type, payload }, options),
    );
    if (status === 'existing')
      say(`taskq: nothing was enqueued: task ${id} has the key already; --force enqueues beside it`);
    if (status === 'replaced') say(`taskq: task ${id} had the key already, and has the new payload now`);
    print(id);
  },
};

function enqueueOptions(yargs: Argv<GlobalArguments>): Argv<GlobalArguments & EnqueueArguments> {
  const withOptions = yargs
    .positional('type', { type: 'string', demandOption: true, describe: 'the task type' })
    .positional('json', {
      type: 'string',
      demandOption: true,
      describe: 'the payload; - reads it from stdin',
    })
    .option('tasks', {
      type: 'string',
      requiresArg: true,
      describe: 'the generated tasks.ts, instead of the definitions',
    })
    .option('delay', { type: 'string', requiresArg: true, describe: "not before this long from now: '30s'" })
    .option('run-at', {
      type: 'string',
      requiresArg: true,
      describe: "not before this moment: '2027-01-31T09:00:00Z'",
    })
    .option('queue', { type: 'string', requiresArg: true, describe: "instead of the type's own" })
    .option('max-attempts', { type: 'number', requiresArg: true, describe: "instead of the type's own" })
    .option('timeout', {
      type: 'string',
      requiresArg: true,
      describe: "a lower ceiling than the type's, for this task: '90s'",
    })
    .option('retention', {
      type: 'string',
      requiresArg: true,
      describe:
        "keep its record this long once it is done, instead of the type's own: '24h'; none keeps none",
    })
    .option('force', {
      type: 'boolean',
      default: false,
      describe: 'also when the type is unique and a task has the key',
    })
    .example(`$0 enqueue explore_purge '{"orgId":"o-1"}' --delay 30s`, '');
  return settingOptions(withOptions, [
    ...CONNECTION_SETTINGS,
    'definitions',
    'out',
    'maxPayloadBytes',
  ]) as unknown as Argv<GlobalArguments & EnqueueArguments>;
}

async function payloadText({ json }: ArgumentsCamelCase<EnqueueArguments>): Promise<string> {
  // yargs takes a lone dash for an option without a name, and hands over empty text.
  if (json !== '-' && !(json === '' && process.argv.includes('-'))) return json;
  return readAll(process.stdin);
}

function toOptions({
  delay,
  runAt,
  queue,
  maxAttempts,
  timeout,
  retention,
  force,
}: EnqueueArguments): EnqueueOptions {
  if (delay !== undefined && runAt !== undefined)
    throw new TaskqError('OPTION_INVALID', '--delay and --run-at: give one of them, not both');
  return {
    // Checked by the enqueue itself, which takes text of any kind and says what is wrong with it.
    ...(delay === undefined ? {} : { delay: delay as Duration }),
    ...(runAt === undefined ? {} : { runAt }),
    ...(queue === undefined ? {} : { queue }),
    ...(maxAttempts === undefined ? {} : { maxAttempts }),
    ...(timeout === undefined ? {} : { timeout: timeout as Duration }),
    ...(retention === undefined
      ? {}
      : { retention: retention === 'none' ? (false as const) : (retention as Duration) }),
    ...(force ? { unique: false } : {}),
  };
}
