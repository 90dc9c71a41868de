import type { Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import { ADMIN_SETTINGS, type AdminArguments, serveAdmin } from '../admin-serving.ts';
import { CONNECTION_SETTINGS } from '../connect.ts';
import { print } from '../output.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';
import { stopSignal } from '../stop-signal.ts';
import { workerLog } from '../worker-log.ts';

const DASHBOARD_SETTINGS = [
  ...CONNECTION_SETTINGS,
  ...ADMIN_SETTINGS,
  'logLevel',
] as const satisfies readonly (keyof Config)[];

type DashboardArguments = AdminArguments & Pick<Config, 'logLevel'>;

/** `taskq dashboard`: serves the admin API and its page, and runs no task, until SIGTERM or Ctrl-C. */
export const dashboard: CommandModule<GlobalArguments, DashboardArguments> = {
  command: 'dashboard',
  describe: 'serve the admin API and the dashboard',
  builder: (yargs: Argv<GlobalArguments>) =>
    settingOptions(yargs, DASHBOARD_SETTINGS) as unknown as Argv<DashboardArguments>,
  handler: async (argv) => {
    const stopping = stopSignal();
    const serving = await serveAdmin(argv, workerLog(argv.logLevel)).catch((error: unknown) => {
      stopping.forget();
      throw error;
    });
    print(`dashboard: ${serving.url}`);
    // To a person at a terminal, not into a log that others read.
    if (process.stdout.isTTY === true && argv.adminToken !== undefined) {
      print(`log in once, within 15 minutes: ${serving.loginUrl()}`);
    }
    await stopping.requested;
    await serving.close();
  },
};
