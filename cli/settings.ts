import type { Argv } from 'yargs';
import { type Config, type ConfigSources, resolveConfig, SETTINGS, type SettingName } from '../src/config.ts';

/** What the process was started with; `main.ts` hands it in. */
export interface Surroundings {
  readonly env: ConfigSources['env'];
  readonly cwd: string;
}

/** Options of every command. */
export interface GlobalArguments {
  config: string | undefined;
  verbose: boolean;
  surroundings: Surroundings;
}

type Arguments<Name extends SettingName> = { -readonly [Key in Name]: Config[Key] };

/**
 * Gives a command the options of the settings named. By the time its handler runs, each of them holds the
 * resolved value (flag, else environment, else taskq.config.ts, else default), checked.
 */
export function settingOptions<Given, Name extends SettingName>(
  yargs: Argv<Given>,
  names: readonly Name[],
): Argv<Given & Arguments<Name>> {
  let withOptions: Argv = yargs;
  for (const name of names) {
    const { flag, description, kind, ...of } = SETTINGS[name];
    const otherwise = of.default ?? of.absent;
    const describe = `${description.replaceAll('`', '')} (${otherwise})`;
    withOptions =
      of.boolean === true
        ? withOptions.option(flag, { type: 'boolean', describe })
        : withOptions.option(flag, { type: 'string', requiresArg: true, describe });
  }
  // Here the commands end: a word too many is an argument.
  return withOptions.strictCommands(false).middleware(async (argv) => {
    const { config, ...given } = argv as unknown as GlobalArguments & Record<string, unknown>;
    // A command that is run without the program around it knows no environment.
    const { surroundings = { env: {}, cwd: process.cwd() } } = given as Partial<GlobalArguments>;
    const flags = Object.fromEntries(names.map((name) => [name, given[camelCase(SETTINGS[name].flag)]]));
    Object.assign(argv, await resolveConfig({ ...surroundings, flags, configFile: config }, names));
  }) as unknown as Argv<Given & Arguments<Name>>;
}

/** As yargs spells an option for its handler. */
function camelCase(flag: string): string {
  return flag.replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
}
