import type { Argv, CommandModule } from 'yargs';
import { TaskqError } from '../../src/domain/errors.ts';
import type { SliceProgress } from '../../src/index.ts';
import { parseTaskId, type ShownTask } from '../../src/operator.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { print, say } from '../output.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';
import { errorLines, fieldLines, maskedNote, SILENT_DEATH } from '../task-lines.ts';

interface ShowArguments extends Connection {
  id: string;
  json: boolean;
}

const show: CommandModule<GlobalArguments, GlobalArguments & ShowArguments> = {
  command: 'show <id>',
  describe: 'show a task, whether it waits, runs, is dead, or is done and kept',
  builder: (yargs: Argv<GlobalArguments>) =>
    settingOptions(
      yargs
        .positional('id', { type: 'string', demandOption: true, describe: 'its id' })
        .option('json', { type: 'boolean', default: false, describe: 'print one JSON object' }),
      CONNECTION_SETTINGS,
    ) as unknown as Argv<GlobalArguments & ShowArguments>,
  handler: async (argv) => {
    const id = parseTaskId(argv.id);
    if (id === undefined)
      throw new TaskqError('OPTION_INVALID', `'${argv.id}' is no task id: expected a whole number from 1 on`);
    const shown = await withOperator(argv, (operator) => operator.showTask(id));
    if (shown === undefined) {
      say(`taskq: there is no task ${id}: ${GONE}`);
      process.exitCode = 1;
    } else if (argv.json) print(toJson(shown));
    else {
      for (const line of describeTask(shown)) print(line);
      const note = maskedNote(shown);
      if (note !== undefined) say(note);
    }
  },
};

const GONE =
  'it is done and was not kept (no retention, or past it), it was dropped or pruned as a dead letter, or it never was';

/** `taskq task show`. */
export const task: CommandModule<GlobalArguments, GlobalArguments> = {
  command: 'task',
  describe: 'look at one task',
  builder: (yargs) => yargs.command(show).demandCommand(1, 'say what to do with the task'),
  handler: () => undefined,
};

function describeTask(shown: ShownTask): string[] {
  const { id, type, queue, headers } = shown;
  const fields = {
    id,
    type,
    queue,
    state: shown.state,
    ...progress(shown),
    payload: shown.payloadText,
    headers: Object.keys(headers).length === 0 ? undefined : JSON.stringify(headers),
    ...answer(shown),
  };
  return [...fieldLines(fields), ...errorLines(shown.errors)];
}

/** Attempts and times, in the order in which they came. */
function progress(shown: ShownTask): Record<string, string | undefined> {
  const enqueued = shown.enqueuedAt.toISOString();
  if (shown.state === 'completed') {
    return {
      attempts: String(shown.attemptCount),
      enqueued,
      started: shown.startedAt?.toISOString(),
      completed: shown.completedAt.toISOString(),
      'kept until': shown.keepUntil.toISOString(),
    };
  }
  return {
    attempts: `${shown.attemptCount} of ${shown.maxAttempts}`,
    enqueued,
    'last attempt': shown.lastAttemptedAt?.toISOString() ?? '-',
    due: shown.state === 'dead' ? undefined : shown.runAt.toISOString(),
    'leased until': shown.leaseExpiresAt?.toISOString(),
  };
}

/** What came of it so far. */
function answer(shown: ShownTask): Record<string, string | undefined> {
  if (shown.state === 'completed') return { result: shown.resultText ?? '-' };
  const { cursorText: cursor, lastError = shown.state === 'dead' ? SILENT_DEATH : undefined } = shown;
  return { cursor, progress: sliceProgress(shown.progress), 'last error': lastError };
}

function sliceProgress(progress: SliceProgress | undefined): string | undefined {
  if (progress === undefined) return undefined;
  return progress.total === undefined ? String(progress.done) : `${progress.done} of ${progress.total}`;
}

/** Payload, cursor and result as they are stored: parsed and printed again, their big numbers would change. */
function toJson(shown: ShownTask): string {
  const { payloadText, ...fields } = shown;
  const texts: Record<string, string | undefined> = { payload: payloadText };
  if (shown.state === 'completed') texts['result'] = shown.resultText;
  else texts['cursor'] = shown.cursorText;
  const stored = Object.entries(texts).map(([name, text]) => `${JSON.stringify(name)}:${text ?? 'null'}`);
  const rest = JSON.stringify({ ...fields, resultText: undefined, cursorText: undefined });
  return `${rest.slice(0, -1)},${stored.join(',')}}`;
}
