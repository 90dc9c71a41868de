import { parseArgs } from 'node:util';
import { Closing } from './closing.ts';
import { runDemo } from './demo.ts';
import { type Platform, startPlatform } from './platform.ts';
import { type DemoReport, renderReport } from './report.ts';
import { Story } from './story.ts';

const USAGE = `npm start -- [--once] [--json]

  --once  exit when the report is printed: 0 when the invariant holds, 1 when not
  --json  print the report as JSON on stdout, the story on stderr`;

/** By convention 128 + SIGINT. */
const EXIT_INTERRUPTED = 130;

interface Options {
  readonly once: boolean;
  readonly json: boolean;
}

/** Runs the demo, and closes all that it started, however it ends. Answers the exit code. */
async function main(options: Options): Promise<number> {
  const story = new Story(options.json ? process.stderr : process.stdout);
  const closing = new Closing((error) => story.say(`not closed properly: ${String(error)}`));
  const interruption = interruptedBySignal();
  try {
    const telling = tell(story, closing, interruption.signal);
    // Interrupted, what is half done fails as its database goes away; nobody is interested in how.
    telling.catch(() => {});
    const told = await Promise.race([telling, interruption.happened]);
    if (told === 'interrupted') return EXIT_INTERRUPTED;
    if (options.json) process.stdout.write(`${JSON.stringify(told.report, undefined, 2)}\n`);
    if (!options.once) {
      await stayUp(told.platform, told.report, story);
      await interruption.happened;
    }
    return told.report.ok ? 0 : 1;
  } finally {
    interruption.abort();
    if (!options.once) story.say('stopping workers, service and PostgreSQL');
    await closing.closeAll();
  }
}

async function tell(story: Story, closing: Closing, signal: AbortSignal) {
  story.chapter('A platform on PostgreSQL, with taskq for the work that follows from its changes');
  const platform = await startPlatform(story, closing);
  const report = await runDemo(platform, story, signal);
  story.chapter('The result');
  story.print(renderReport(report));
  return { platform, report };
}

/** Says what to look at, and goes on telling what the workers do. */
async function stayUp(platform: Platform, report: DemoReport, story: Story): Promise<void> {
  const { postgres, service, events, workers, db } = platform;
  const live = await db
    .selectFrom('stacks')
    .select(['id', 'name'])
    .where('deleted_at', 'is', null)
    .orderBy('name')
    .limit(2)
    .execute();
  const [stack, other] = [live[0]?.id ?? 'ID', live[1]?.name ?? 'NAME'];
  const alive = workers.filter(({ name }) => name !== report.takeover.killedWorker);
  story.chapter('All of it stays up until Ctrl-C');
  story.print(`  all stacks       curl ${service.url}/stacks
  deploy one       curl -X POST ${service.url}/stacks/${stack}/deploy
  be refused       curl -X POST ${service.url}/stacks/${stack}/rename -d '${JSON.stringify({ name: other })}'
  delete it        curl -X DELETE '${service.url}/stacks/${stack}?force=true'
  the queue        node dist/cli/main.js stats --database-url '${postgres.url()}'
  the rows         psql '${postgres.url()}' -c 'TABLE taskq.async_tasks'
  the ledger       psql '${postgres.url()}' -c 'SELECT task_type, committed, count(*) FROM ledger GROUP BY 1, 2'
  the worker left  ${alive.map(({ name, pid }) => `${name}, pid ${pid}`).join('; ')}
`);
  events.watch((event) => {
    const task = `${event.type} ${event.id}`;
    if (event.kind === 'claimed')
      story.say(`worker ${event.worker} claimed ${task}, attempt ${event.attempt}`);
    else story.say(`worker ${event.worker} settled ${task}: ${event.outcome}`);
  });
}

function interruptedBySignal() {
  const controller = new AbortController();
  const happened = new Promise<'interrupted'>((resolve) => {
    const onSignal = () => {
      // The second one means now: the workers and PostgreSQL end by themselves when this process is gone.
      if (controller.signal.aborted) process.exit(EXIT_INTERRUPTED);
      controller.abort();
      resolve('interrupted');
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
  });
  return { signal: controller.signal, happened, abort: () => controller.abort() };
}

function readOptions(): Options | undefined {
  try {
    const { values } = parseArgs({
      options: {
        once: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (!values.help) return values;
    process.stdout.write(`${USAGE}\n`);
    process.exitCode = 0;
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n\n${USAGE}\n`);
    process.exitCode = 2;
  }
  return undefined;
}

const options = readOptions();
if (options !== undefined) {
  try {
    process.exitCode = await main(options);
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    process.exitCode = 1;
  }
}
