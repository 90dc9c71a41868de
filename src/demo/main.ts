import { randomUUID } from 'node:crypto';
import { parseArgs } from 'node:util';
import { createAdmin } from '../admin/index.ts';
import { runSocialDemo } from '../social/demo/main.ts';
import { Closing } from './closing.ts';
import { runDemo } from './demo.ts';
import { type GivenStores, type Platform, startPlatform } from './platform.ts';
import { type DemoReport, renderReport } from './report.ts';
import { withoutSdkNotice } from './sdk-notice.ts';
import { Story } from './story.ts';

const USAGE = `npm start -- [--once] [--json]
npm start -- social

  social  the other reference application, which tells its story and ends: 0 when all of it came true, 1 when not
  --once  exit when the report is printed: 0 when the invariant holds, 1 when not
  --json  print the report as JSON on stdout, the story on stderr

The Explore database and the object store are started too, unless there are some. Both must be empty.

  --explore-url URL             a PostgreSQL database
  --object-store-endpoint URL   an object store that speaks the protocol of S3; credentials as the AWS SDK finds them
  --object-store-bucket NAME    its bucket; without an endpoint, one of AWS
  --object-store-region NAME    default us-east-1`;

/** By convention 128 + SIGINT. */
const EXIT_INTERRUPTED = 130;

interface Options {
  readonly story: 'delivery' | 'social';
  readonly once: boolean;
  readonly json: boolean;
  readonly stores: GivenStores;
}

/** Runs the demo, and closes all that it started, however it ends. Answers the exit code. */
async function main(options: Options): Promise<number> {
  const story = new Story(options.json ? process.stderr : process.stdout);
  const closing = new Closing((error) => story.say(`not closed properly: ${String(error)}`));
  const interruption = interruptedBySignal();
  try {
    const telling = tell(options.stores, story, closing, interruption.signal);
    // Interrupted, what is half done fails as its database goes away; nobody is interested in how.
    telling.catch(() => {});
    const told = await Promise.race([telling, interruption.happened]);
    if (told === 'interrupted') return EXIT_INTERRUPTED;
    if (options.json) process.stdout.write(`${JSON.stringify(told.report, undefined, 2)}\n`);
    if (!options.once) {
      await stayUp(told.platform, told.report, story, closing);
      await interruption.happened;
    }
    return told.report.ok ? 0 : 1;
  } finally {
    interruption.abort();
    if (!options.once) story.say('stopping workers, service and stores');
    await closing.closeAll();
  }
}

function tellSocial(): Promise<number> {
  return runSocialDemo({ out: process.stdout, signal: interruptedBySignal().signal });
}

async function tell(given: GivenStores, story: Story, closing: Closing, signal: AbortSignal) {
  story.chapter('A delivery platform, with taskq for the work that follows from its changes');
  const platform = await startPlatform(given, story, closing, signal);
  const report = await runDemo(platform, story, signal);
  story.chapter('The result');
  story.print(renderReport(report));
  return { platform, report };
}

/** Says what to look at, and goes on telling what the workers do. */
async function stayUp(platform: Platform, report: DemoReport, story: Story, closing: Closing): Promise<void> {
  const { postgres, service, events, workers, stores } = platform;
  const live = await stores.db
    .selectFrom('stacks')
    .select(['id', 'name'])
    .where('deleted_at', 'is', null)
    .orderBy('name')
    .limit(2)
    .execute();
  const [stack, other] = [live[0]?.id ?? 'ID', live[1]?.name ?? 'NAME'];
  const alive = workers.filter(({ name }) => name !== report.takeover.killedWorker);
  const dashboard = await openDashboard(platform, closing);
  story.chapter('All of it stays up until Ctrl-C');
  story.print(`  the dashboard    ${dashboard}
                   (logs in once, within a quarter of an hour)
  all stacks       curl ${service.url}/stacks
  deploy one       curl -X POST ${service.url}/stacks/${stack}/deploy
  be refused       curl -X POST ${service.url}/stacks/${stack}/rename -d '${JSON.stringify({ name: other })}'
  delete it        curl -X DELETE '${service.url}/stacks/${stack}?force=true'
  sweep the fleet  curl -X POST ${service.url}/sweep
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

/** Serves the dashboard on a free port of this machine; answers an address that logs in once. */
async function openDashboard({ postgres }: Platform, closing: Closing): Promise<string> {
  // Nobody is told the token: the address is the only way in.
  const admin = await createAdmin({ database: postgres.connection(), token: randomUUID() });
  closing.defer(() => admin.close());
  const { url } = await admin.listen({ port: 0 });
  return new URL(admin.loginPath(), url).href;
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
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        once: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        'explore-url': { type: 'string' },
        'object-store-endpoint': { type: 'string' },
        'object-store-bucket': { type: 'string' },
        'object-store-region': { type: 'string', default: 'us-east-1' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (!values.help) {
      const { once, json, 'explore-url': explore } = values;
      return {
        story: storyOf(positionals),
        once,
        json,
        stores: { explore, objects: givenObjectStore(values) },
      };
    }
    process.stdout.write(`${USAGE}\n`);
    process.exitCode = 0;
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n\n${USAGE}\n`);
    process.exitCode = 2;
  }
  return undefined;
}

/** @throws Error for a story that there is not */
function storyOf(positionals: readonly string[]): Options['story'] {
  const [story = 'delivery', ...others] = positionals;
  if (others.length === 0 && (story === 'delivery' || story === 'social')) return story;
  throw new Error(
    `there is no story '${positionals.join(' ')}'; there is social, and the delivery platform without a name`,
  );
}

/** @throws Error for an endpoint without a bucket */
function givenObjectStore(values: {
  'object-store-endpoint'?: string | undefined;
  'object-store-bucket'?: string | undefined;
  'object-store-region': string;
}): GivenStores['objects'] {
  const { 'object-store-endpoint': endpoint, 'object-store-bucket': bucket } = values;
  if (bucket !== undefined) return { bucket, endpoint, region: values['object-store-region'] };
  if (endpoint === undefined) return undefined;
  throw new Error('--object-store-endpoint needs --object-store-bucket');
}

withoutSdkNotice();
const options = readOptions();
if (options !== undefined) {
  try {
    process.exitCode = options.story === 'social' ? await tellSocial() : await main(options);
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    process.exitCode = 1;
  }
}
