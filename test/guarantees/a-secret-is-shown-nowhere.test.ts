import { context, propagation, trace } from '@opentelemetry/api';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { type Kysely, sql } from 'kysely';
import { pino } from 'pino';
import { beforeAll, expect } from 'vitest';
import { z } from 'zod';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import {
  createApp,
  createEnqueuer,
  createRegistry,
  defineTask,
  type HandlersFor,
  type QueueEvent,
  type RunMiddleware,
  SkipRetry,
} from '../../src/index.ts';
import { createMetrics } from '../../src/metrics/index.ts';
import { type Operator, openOperator } from '../../src/operator.ts';
import { build, PROJECT, taskq } from '../support/cli.ts';
import { EventLog } from '../support/replica.ts';
import { makeDue, wakeReplicas } from '../support/rows.ts';
import { onTestFinished, TEST_SCHEMA, test } from '../support/test.ts';

// One payload with secrets in many places goes everywhere a payload can go. Then all that was said, printed, counted,
// traced and kept is searched for them.

beforeAll(build);

const secret = <Schema extends z.ZodType>(schema: Schema): Schema => schema.meta({ taskq: 'secret' });

const vaultPayload = z.object({
  to: z.string(),
  token: secret(z.string()),
  pin: secret(z.number()),
  card: secret(z.object({ number: z.string(), holder: z.string() })),
  keys: z.array(secret(z.string())),
  byHost: z.record(z.string(), secret(z.string())),
  nested: z.object({ deep: secret(z.string()).optional() }),
  either: z.union([secret(z.string().min(9)), z.number()]),
  trimmed: secret(z.string().trim().toLowerCase()),
  multiline: secret(z.string()).default('none'),
  big: secret(z.bigint()).nullable(),
  json: z.preprocess((given) => JSON.parse(String(given)), z.object({ inner: secret(z.string()) })),
});
type Vault = z.input<typeof vaultPayload>;

/** Every value that must not be seen, in every spelling that a schema makes of it. */
const CANARIES = /canary|733133|\b9071992547409930\b/i;

const SECRETS: Vault = {
  to: 'ada',
  token: 'canary-token-"quoted"',
  pin: 733_133,
  card: { number: 'canary-4242', holder: 'canary-holder' },
  keys: ['canary-key-1', 'canary-key-2'],
  byHost: { 'example.com': 'canary-by-host' },
  nested: { deep: 'canary-deep' },
  either: 'canary-either',
  trimmed: '  Canary-Trimmed ',
  multiline: 'canary-line-1\ncanary-line-2',
  big: 9_071_992_547_409_930n,
  json: '{"inner":"canary-inner"}',
};

const limits = { ceiling: '5m', maxAttempts: 2 } as const;
const vault = defineTask({
  type: 'vault',
  payload: vaultPayload,
  ...limits,
  upgrades: {
    2(old) {
      throw new Error(`no upgrade for ${JSON.stringify(old)}`);
    },
  },
});
const strict = defineTask({
  type: 'strict',
  payload: z
    .object({ token: secret(z.string()), to: z.string() })
    .refine(() => false, { error: ({ input }) => `refused ${JSON.stringify(input)}` }),
  ...limits,
});
const walk = defineTask({
  type: 'walk',
  payload: z.object({ token: secret(z.string()) }),
  cursor: z.object({ after: secret(z.string()), page: z.number() }),
  ...limits,
});
const tasks = {
  vault: { definition: vault, revision: 2 },
  strict: { definition: strict, revision: 1 },
  walk: { definition: walk, revision: 1 },
};
type Tasks = typeof tasks;
const { enqueue, enqueueMany } = createEnqueuer(tasks);

/** Everything an output can be made of, with what JSON leaves out of errors and bigints. */
const everythingOf = (value: unknown): string =>
  JSON.stringify(value, (_key, item: unknown) => {
    if (typeof item === 'bigint') return String(item);
    if (!(item instanceof Error)) return item;
    return { ...item, name: item.name, message: item.message, stack: item.stack, cause: item.cause };
  }) ?? '';

class Outputs {
  readonly #texts: [from: string, text: string][] = [];

  add(from: string, output: unknown): void {
    this.#texts.push([from, typeof output === 'string' ? output : everythingOf(output)]);
  }

  /** Those that show a secret, each with what stands around it. */
  leaks(): string[] {
    return this.#texts.flatMap(([from, text]) => {
      const at = text.search(CANARIES);
      return at === -1 ? [] : [`${from}: …${text.slice(Math.max(0, at - 60), at + 60)}…`];
    });
  }

  text(from: string): string {
    return this.#texts
      .filter(([name]) => name === from)
      .map(([, text]) => text)
      .join('\n');
  }
}

/** How the handler of `vault` quotes what it was given. */
const QUOTES: Record<string, (payload: z.output<typeof vaultPayload>) => unknown> = {
  message: ({ token }) => new Error(`login with ${token} refused`),
  json: (payload) => new Error(`cannot send ${everythingOf(payload)}`),
  cause: ({ trimmed, json }) => new Error(`no ${trimmed}`, { cause: new TypeError(`bad ${json.inner}`) }),
  members: ({ keys }) =>
    new AggregateError(
      keys.map((key) => new Error(`no key ${key}`)),
      'none',
    ),
  object: ({ card, pin, big }) => ({ card, pin, big }),
  text: ({ nested }) => `no ${nested.deep}`,
  url: ({ token }) => new Error(`GET https://x/?t=${encodeURIComponent(token)} answered 403`),
  line: ({ multiline }) => new SkipRetry(`bad line ${multiline.split('\n')[1]}`),
};

function handlers(quote: () => string | undefined): HandlersFor<Tasks> {
  return {
    async vault(payload, { result }) {
      const throws = QUOTES[quote() ?? ''];
      if (throws !== undefined) throw throws(payload);
      result({ sent: true, echo: payload.token });
    },
    strict: async () => {},
    async walk({ token }, { cursor, advanceCursor, stoppedEarly }) {
      if (cursor !== undefined) throw new SkipRetry(`lost at ${cursor.after}`);
      const next = { after: 'canary-after', page: 1 };
      await advanceCursor(next);
      const fields = { tried: [`with ${token}`], at: next };
      stoppedEarly({
        on: 'page_read',
        error: new Error(`no page for ${token}`),
        cursor: next,
        pagesRead: 1,
        fields,
      });
      return 'continue';
    },
  };
}

/** A middleware whose own error carries the handler's. */
const rethrowing: RunMiddleware = async (_run, next) => {
  const end = await next();
  if (end.kind === 'threw') throw new Error(`seen: ${String(end.error)}`, { cause: end.error });
};

/** Rows as they are kept, without what may hold the payload itself. */
async function keptTexts(db: Kysely<DB>): Promise<unknown[]> {
  const tables = [
    'async_tasks',
    'async_completed_tasks',
    'async_audit',
    'async_task_types',
    'async_cron_ticks',
  ];
  const kept = await Promise.all(
    tables.map(async (table) => {
      const { rows } = await sql<{ row: object }>`
        select to_jsonb(t) - 'payload' - 'result' - 'cursor' as row from ${sql.table(`${TEST_SCHEMA}.${table}`)} t`.execute(
        db,
      );
      return rows.map(({ row }) => row);
    }),
  );
  return kept.flat();
}

function traced(): InMemorySpanExporter {
  const exporter = new InMemorySpanExporter();
  const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  provider.register();
  onTestFinished(async () => {
    await provider.shutdown();
    trace.disable();
    context.disable();
    propagation.disable();
  });
  return exporter;
}

async function insertOld(db: Kysely<DB>, type: string, payload: object): Promise<TaskId> {
  const { id } = await db
    .insertInto('async_tasks')
    .values({ task_type: type, payload: JSON.stringify(payload), max_attempts: 2 })
    .returning('id')
    .executeTakeFirstOrThrow();
  return id as TaskId;
}

type Refusable = () => Promise<unknown>;

/** Enqueues that are refused, by everything that can be wrong with a payload. */
const refusals = (db: Kysely<DB>): Refusable[] => [
  () => enqueue(db, 'vault', { ...SECRETS, token: { canary: 1 }, pin: 'canary' } as never),
  () => enqueue(db, 'vault', { ...SECRETS, either: 'canary' }),
  () => enqueue(db, 'strict', { token: 'canary-strict', to: 'ada' }),
  () => enqueueMany(db, 'strict', [{ token: 'canary-strict', to: 'ada' }]),
  () => enqueue(db, 'vault', { ...SECRETS, card: { ...SECRETS.card, 'canary-extra': () => 1 } } as never),
];

/** A replica that tells everything it can tell. */
async function startTalking(url: string, quote: () => string | undefined, outputs: Outputs) {
  const metrics = createMetrics();
  const events = new EventLog();
  const app = createApp({
    database: url,
    roles: ['processor'],
    slots: 1,
    handlers: createRegistry(tasks, handlers(quote)),
    middleware: [rethrowing],
    logger: pino({ level: 'trace' }, { write: (line: string) => outputs.add('log', line) }),
    metrics,
    observer(event: QueueEvent) {
      outputs.add('event', event);
      events.observe(event);
    },
  });
  onTestFinished(() => app.stop());
  await app.start();
  return { events, metrics };
}

/** What operators see of these tasks, in process. */
async function lookAt(url: string, ids: readonly TaskId[], outputs: Outputs): Promise<Operator> {
  const operator = await openOperator({ database: url });
  onTestFinished(() => operator.close());
  const page = { limit: 50 };
  const seen = [
    await operator.stats(),
    await operator.listDead(page),
    await operator.listCompleted(page),
    await operator.previewMany({}),
    await operator.checkPayloads(tasks),
  ];
  for (const id of ids) seen.push((await operator.showTask(id)) as never);
  outputs.add('operator', seen);
  return operator;
}

/** And by the command. */
async function printAll(url: string, done: TaskId, dead: TaskId, outputs: Outputs): Promise<void> {
  const commands = [
    ['dead', 'list'],
    ['dead', 'list', '--json'],
    ['dead', 'show', dead],
    ['dead', 'show', dead, '--json'],
    ['dead', 'replay', '--all', '--dry-run', '--json'],
    ['task', 'show', done],
    ['task', 'show', done, '--json'],
    ['task', 'show', dead, '--json'],
    ['stats', '--json'],
  ];
  for (const args of commands) {
    const { code, stdout, stderr } = await taskq(args, { env: { DATABASE_URL: url }, cwd: PROJECT });
    expect(code, stderr).toBe(0);
    outputs.add('command', stdout + stderr);
  }
}

test('a secret of a payload is in no log, event, error, trace, metric, row or command but the payload itself', async ({
  database,
  db,
}) => {
  const outputs = new Outputs();
  const exporter = traced();
  let quote: string | undefined;
  const { events, metrics } = await startTalking(database.url, () => quote, outputs);
  const settled = (id: TaskId, isDead: boolean) =>
    events.first('settled', ({ task, dead }) => task.id === id && dead === isDead);

  // Success, kept with a result that quotes it; and each way to fail, retried, to a dead letter.
  const kept = await enqueue(db, 'vault', SECRETS, { retention: '1h' });
  await settled(kept.id, false);
  const dead: TaskId[] = [];
  for (quote of Object.keys(QUOTES)) {
    const { id } = await enqueue(db, 'vault', SECRETS);
    if (quote !== 'line') {
      await settled(id, false);
      await makeDue(db, id);
      await wakeReplicas(db);
    }
    await settled(id, true);
    dead.push(id);
  }
  // A slice that stops early, and the next one that quotes the cursor. Poison: by a message of the schema's own, by
  // type, and by an upgrade that throws.
  dead.push(
    (await enqueue(db, 'walk', { token: 'canary-walk-token' })).id,
    await insertOld(db, 'strict', { token: 'canary-strict-token', to: 'ada' }),
    await insertOld(db, 'walk', { token: { 'canary-name': 'canary-value' } }),
    await insertOld(db, 'vault', { oldName: 'canary-old-value' }),
  );
  await wakeReplicas(db);
  for (const id of dead) await settled(id, true);
  for (const refused of refusals(db)) {
    outputs.add(
      'refusal',
      await refused().then(
        () => expect.fail('was not refused'),
        (error: unknown) => error,
      ),
    );
  }

  const operator = await lookAt(database.url, [kept.id, ...dead], outputs);
  await printAll(database.url, kept.id, dead[0] as TaskId, outputs);
  // Replayed, and dead again.
  quote = 'json';
  const before = events.of('settled').length;
  const { replayed } = await operator.replayMany({ type: 'vault' });
  await events.until(() => events.of('settled').length >= before + replayed, 'the runs of the replay');
  outputs.add('audit', await operator.listAudit({ limit: 50 }));
  outputs.add('metrics', await metrics.render());
  outputs.add(
    'spans',
    exporter
      .getFinishedSpans()
      .map(({ name, attributes, events: of, status }) => ({ name, attributes, of, status })),
  );
  outputs.add('rows', await keptTexts(db));

  expect(outputs.leaks()).toEqual([]);
  // And it was there to be seen: the handlers had it, and so has the row.
  for (const from of ['rows', 'spans', 'log']) expect(outputs.text(from)).toContain('login with ••• refused');
  expect(outputs.text('log')).toContain('slice_stopped_early');
  expect(outputs.text('operator')).toContain('"to\\": \\"ada\\"');
  expect(outputs.text('command')).toContain('"token": "•••"');
  const { rows } = await sql<{ payload: string }>`
    select payload::text from ${sql.table(`${TEST_SCHEMA}.async_completed_tasks`)}`.execute(db);
  expect(rows[0]?.payload).toContain('canary-token');
});
