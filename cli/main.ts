#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import yargs, { type Argv } from 'yargs';
import { isDebug } from '../src/config.ts';
import { audit } from './commands/audit.ts';
import { checkPayloads } from './commands/check-payloads.ts';
import { codegen } from './commands/codegen.ts';
import { cron } from './commands/cron.ts';
import { dashboard } from './commands/dashboard.ts';
import { dead } from './commands/dead.ts';
import { dev } from './commands/dev.ts';
import { doctor } from './commands/doctor.ts';
import { enqueue } from './commands/enqueue.ts';
import { init } from './commands/init.ts';
import { metrics } from './commands/metrics.ts';
import { migrate } from './commands/migrate.ts';
import { prune } from './commands/prune.ts';
import { queue } from './commands/queue.ts';
import { stats } from './commands/stats.ts';
import { task } from './commands/task.ts';
import { work } from './commands/work.ts';
import { exitCodeOf, jsonOf, messageOf, stackOf, UsageError } from './failure.ts';
import { print, say } from './output.ts';
import type { GlobalArguments, Surroundings } from './settings.ts';

// Exit codes: 0 done, 1 failed, 2 misuse. Nothing here is coloured, so NO_COLOR has nothing to switch off.

const HELP_WIDTH_MAX = 100;

await main(process.argv.slice(2), { env: process.env, cwd: process.cwd() });

async function main(args: readonly string[], surroundings: Surroundings): Promise<void> {
  for (const stream of [process.stdout, process.stderr]) {
    // Whoever read the output has gone (`taskq stats | head -1`): no reason to end with a stack.
    stream.on('error', () => undefined);
  }
  try {
    await program(args, surroundings).parseAsync();
  } catch (error) {
    if (args.includes('--json')) print(jsonOf(error));
    say(`taskq: ${messageOf(error)}`);
    if (error instanceof UsageError && error.usage !== '') say(`\n${error.usage}`);
    else if (isDebug(surroundings.env) || args.includes('--verbose')) say(stackOf(error));
    process.exitCode = exitCodeOf(error);
  }
}

function program(args: readonly string[], surroundings: Surroundings): Argv<GlobalArguments> {
  const commands = yargs([...args])
    .scriptName('taskq')
    .usage('$0 <command>\n\nA durable task queue on PostgreSQL.')
    .locale('en')
    .updateStrings({
      'Not enough non-option arguments: got %s, need at least %s': {
        one: 'an argument is missing: %s given, %s needed',
        other: 'an argument is missing: %s given, %s needed',
      },
      'Unknown argument: %s': { one: 'unknown argument: %s', other: 'unknown argument: %s' },
      'Unknown arguments: %s': { one: 'unknown arguments: %s', other: 'unknown arguments: %s' },
      'Unknown command: %s': { one: 'unknown command: %s', other: 'unknown commands: %s' },
    } as unknown as Record<string, string>)
    .parserConfiguration({ 'parse-numbers': false, 'parse-positional-numbers': false })
    .option('config', {
      type: 'string',
      requiresArg: true,
      global: true,
      describe: 'the configuration file (taskq.config.ts in this folder)',
    })
    .option('verbose', {
      type: 'boolean',
      default: false,
      global: true,
      describe: 'show the stack of an error',
    })
    .middleware((argv) => {
      Object.assign(argv, { surroundings });
    }) as unknown as Argv<GlobalArguments>;
  return commands
    .command(init)
    .command(migrate)
    .command(codegen)
    .command(checkPayloads)
    .command(work)
    .command(enqueue)
    .command(stats)
    .command(task)
    .command(cron)
    .command(dead)
    .command(queue)
    .command(audit)
    .command(prune)
    .command(dashboard)
    .command(metrics)
    .command(doctor)
    .command(dev)
    .demandCommand(1, 'name a command')
    .strictCommands()
    .strict()
    .recommendCommands()
    .version(packageVersion())
    .help()
    .alias('help', 'h')
    .wrap(Math.min(HELP_WIDTH_MAX, process.stdout.columns ?? HELP_WIDTH_MAX))
    .epilogue('Settings come from flags, the environment and taskq.config.ts, in that order: docs/cli.md.')
    .exitProcess(false)
    .fail((message: string, error: Error | undefined, usage: Argv) => {
      // It must throw: after a fail handler that returns, yargs goes on to run the command.
      // What yargs itself finds wrong, such as an option without its value, may come as an error of its own.
      if (error !== undefined && error.name !== 'YError') throw error;
      throw new UsageError(message, usageOf(usage));
    });
}

/** What the misused command takes, up to its options: with all of them, the message would scroll out of sight. */
function usageOf(usage: Argv): string {
  let help = '';
  usage.showHelp((text) => {
    help = text;
  });
  return `Usage: ${help.split(/^Options:$/m)[0]?.trim()}\n\n--help shows the options.`;
}

function packageVersion(): string {
  const file = new URL('../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}
