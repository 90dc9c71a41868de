import type { Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import { formatDuration } from '../../src/domain/duration.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { print, say } from '../output.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';

interface PruneArguments extends Connection, Pick<Config, 'retention'> {
  json: boolean;
}

/** `taskq prune`: deletes old dead letters and records now, as workers do once an hour. */
export const prune: CommandModule<GlobalArguments, GlobalArguments & PruneArguments> = {
  command: 'prune',
  describe: 'delete the dead letters and the records of finished tasks that are past their retention',
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
    const { deadLetters, completed } = await withOperator(argv, (operator) =>
      operator.prune({ retentionMs, onProgress: sayProgress }),
    );
    if (argv.json) {
      print(JSON.stringify({ deleted: deadLetters, completed, retentionMs }));
      return;
    }
    print(
      `pruned ${deadLetters} dead letters whose last attempt is older than ${formatDuration(retentionMs)}, and ${completed} records of finished tasks`,
    );
  },
};

function sayProgress(deleted: number): void {
  if (deleted > 0) say(`pruned ${deleted} so far`);
}
