import type { Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import { formatDuration } from '../../src/domain/duration.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { print, say } from '../output.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';

interface PruneArguments extends Connection, Pick<Config, 'retention'> {
  json: boolean;
}

/** `taskq prune`: deletes old dead letters now, as workers do once an hour. */
export const prune: CommandModule<GlobalArguments, GlobalArguments & PruneArguments> = {
  command: 'prune',
  describe: 'delete the dead letters that are past their retention',
  builder: (yargs: Argv<GlobalArguments>) =>
    settingOptions(
      yargs.option('json', {
        type: 'boolean',
        default: false,
        describe: 'print the result as one JSON object',
      }),
      [...CONNECTION_SETTINGS, 'retention'],
    ) as unknown as Argv<GlobalArguments & PruneArguments>,
  handler: async (argv) => {
    const { retention: retentionMs } = argv;
    const deleted = await withOperator(argv, (operator) =>
      operator.prune({ retentionMs, onProgress: sayProgress }),
    );
    if (argv.json) print(JSON.stringify({ deleted, retentionMs }));
    else
      print(`pruned ${deleted} dead letters whose last attempt is older than ${formatDuration(retentionMs)}`);
  },
};

function sayProgress(deleted: number): void {
  if (deleted > 0) say(`pruned ${deleted} so far`);
}
