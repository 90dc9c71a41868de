import type { Argv, CommandModule } from 'yargs';
import { type InitEntry, type InitReport, runInit } from '../../src/init/init.ts';
import { print, say } from '../output.ts';
import type { GlobalArguments } from '../settings.ts';

interface InitArguments {
  ci: boolean;
  dryRun: boolean;
  json: boolean;
}

/** `taskq init`: what was written and what was kept on stdout; exit code 1 when the generated files could not be made. */
export const init: CommandModule<GlobalArguments, GlobalArguments & InitArguments> = {
  command: 'init',
  describe: 'set taskq up in this project: a first task, its handler, scripts, a CI step',
  builder: initOptions,
  handler: async ({ ci, dryRun, json, config, surroundings }) => {
    const sources = { ...surroundings, flags: {}, configFile: config };
    const report = await runInit({ sources, ci, dryRun, onProgress: say });
    if (json) print(JSON.stringify(report));
    else printReport(report);
    if (report.files.some(({ status }) => status === 'failed')) process.exitCode = 1;
  },
};

function initOptions(yargs: Argv<GlobalArguments>): Argv<GlobalArguments & InitArguments> {
  // yargs hands `dry-run` over as `dryRun` too; its types know only the spelling that was declared.
  return yargs
    .option('ci', {
      type: 'boolean',
      default: false,
      describe: 'write a workflow for GitHub Actions even where there is none yet',
    })
    .option('dry-run', { type: 'boolean', default: false, describe: 'write nothing; print what would be' })
    .option('json', {
      type: 'boolean',
      default: false,
      describe: 'print the report as one JSON object',
    }) as unknown as Argv<GlobalArguments & InitArguments>;
}

function printReport({ files, scripts, ciStep, warnings, next }: InitReport): void {
  for (const entry of files) print(`${entry.status.padEnd(9)} ${entry.path}${suffix(entry)}`);
  for (const { name, command, status } of scripts) print(`${status.padEnd(9)} script ${name}: ${command}`);
  if (ciStep !== undefined) print(`\nA step for your CI:\n  ${ciStep}`);
  for (const warning of warnings) print(`\nwarning: ${warning}`);
  print('\nNext, with DATABASE_URL set (`taskq dev` starts a PostgreSQL and prints its URL):');
  for (const command of next) print(`  ${command}`);
}

function suffix({ status, note }: InitEntry): string {
  if (note !== undefined) return ` (${note})`;
  return status === 'kept' ? ' (it was there)' : '';
}
