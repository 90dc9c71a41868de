import { existsSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { ROLES } from './app.ts';
import { checkActor } from './domain/actor.ts';
import { type Duration, durationMs, formatDuration } from './domain/duration.ts';
import { TaskqError } from './domain/errors.ts';
import {
  ADMIN_PORT_DEFAULT,
  ADMIN_TOKEN_LENGTH_MIN,
  LEASE_MARGIN_MS_MAX,
  LEASE_MARGIN_MS_MIN,
  METRICS_PORT_DEFAULT,
  PAYLOAD_BYTES_MAX,
  PAYLOAD_BYTES_MAX_DEFAULT,
  POLL_INTERVAL_MS_MAX,
  POLL_INTERVAL_MS_MIN,
  POOL_MAX_DEFAULT,
  QUEUE_WEIGHT_DEFAULT,
  QUEUE_WEIGHT_MAX,
  SHUTDOWN_GRACE_MS_MAX,
  SLOTS_DEFAULT,
  SLOTS_MAX,
} from './domain/limits.ts';
import { checkSchemaName } from './domain/schema-name.ts';
import { checkName } from './domain/task-definition.ts';
import { loadUserModule } from './user-module.ts';

// The one place that reads the environment. A value comes from a flag, else from the environment, else from
// taskq.config.ts, else it is the default; each is checked where it comes from, so that the error can say where
// the wrong value stands. SETTINGS is the only list of them: flags, environment, file and documentation follow it.

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;

/** Of `taskq work`. Not `admin` unless it is asked for: it needs a token. */
export const WORKER_ROLES = [...ROLES, 'admin'] as const;

/** One value that an operator may set. */
interface Setting<Schema extends z.ZodType, Default extends string | undefined> {
  /** Undefined: not from the environment. */
  readonly env: string | undefined;
  /** Without the dashes. */
  readonly flag: string;
  /** As one would type it; undefined when there is none. */
  readonly default: Default;
  /** What stands in the documentation and in errors when there is no default. */
  readonly absent?: string;
  /** What a value must be, to go on after `expected`. */
  readonly kind: string;
  readonly description: string;
  /** Takes text (flag, environment) and the values of the configuration file. */
  readonly schema: Schema;
  /** It may hold a password: never shown. */
  readonly secret?: true;
  readonly boolean?: true;
}

function setting<Schema extends z.ZodType, const Default extends string | undefined>(
  of: Setting<Schema, Default>,
): Setting<Schema, Default> {
  return of;
}

/** Every setting, by its key in `taskq.config.ts`, in the order of the documentation. */
export const SETTINGS = {
  databaseUrl: setting({
    env: 'DATABASE_URL',
    flag: 'database-url',
    default: undefined,
    absent: 'required where a database is used',
    kind: 'a PostgreSQL URL such as postgres://user@host:5432/name',
    description: 'The primary: every claim, settlement and enqueue.',
    schema: databaseUrl(),
    secret: true,
  }),
  readDatabaseUrl: setting({
    env: 'DATABASE_URL_READ',
    flag: 'read-database-url',
    default: undefined,
    absent: 'the primary',
    kind: 'a PostgreSQL URL such as postgres://user@host:5432/name',
    description: 'A read replica, for discovery, counts and lists. It may lag.',
    schema: databaseUrl(),
    secret: true,
  }),
  listenDatabaseUrl: setting({
    env: 'DATABASE_URL_LISTEN',
    flag: 'listen-database-url',
    default: undefined,
    absent: 'the primary',
    kind: 'a PostgreSQL URL such as postgres://user@host:5432/name',
    description: 'The primary without a transaction pooler in between, which cannot carry LISTEN.',
    schema: databaseUrl(),
    secret: true,
  }),
  schema: setting({
    env: 'TASKQ_SCHEMA',
    flag: 'schema',
    default: 'taskq',
    kind: 'the name of a PostgreSQL schema, 1 to 63 bytes, not beginning with pg_',
    description: "The schema of the queue's tables.",
    schema: z.string().refine(accepts(checkSchemaName)),
  }),
  concurrency: setting({
    env: 'TASKQ_CONCURRENCY',
    flag: 'concurrency',
    default: String(SLOTS_DEFAULT),
    kind: `a whole number from 1 to ${SLOTS_MAX}`,
    description: 'Slots: tasks run at once in one worker process.',
    schema: wholeNumber(1, SLOTS_MAX),
  }),
  queues: setting({
    env: 'TASKQ_QUEUES',
    flag: 'queues',
    default: undefined,
    absent: 'every queue',
    kind: "names of queues, each with its weight or none, such as 'critical=6,default=3,low=1'",
    description: 'The queues that a worker serves, and their shares of its claims.',
    schema: queueWeights(),
  }),
  strictQueues: setting({
    env: 'TASKQ_STRICT_QUEUES',
    flag: 'strict-queues',
    default: 'false',
    kind: 'true or false',
    description: 'Serve a queue only while those of a greater weight have nothing due.',
    schema: z.union([z.boolean(), z.stringbool()]),
    boolean: true,
  }),
  roles: setting({
    env: 'TASKQ_ROLES',
    flag: 'roles',
    default: ROLES.join(','),
    kind: `one or more of ${WORKER_ROLES.join(', ')}, separated by commas`,
    description:
      'What a worker does: `processor` runs tasks, `cron` enqueues those of the cron list, `prune` deletes what is past its time once an hour, `admin` serves the admin API.',
    schema: names(z.enum(WORKER_ROLES)),
  }),
  retention: setting({
    env: 'TASKQ_RETENTION',
    flag: 'retention',
    default: '7d',
    kind: "a length of time with its unit, such as '7d' or '36h'",
    description: 'Dead letters are deleted this long after their last attempt.',
    schema: duration(),
  }),
  leaseMargin: setting({
    env: 'TASKQ_LEASE_MARGIN',
    flag: 'lease-margin',
    default: '30s',
    kind: `a length of time from ${formatDuration(LEASE_MARGIN_MS_MIN)} to ${formatDuration(LEASE_MARGIN_MS_MAX)}, such as '30s'`,
    description: "How long a lease outlives its handler's deadline. The same in every worker.",
    schema: duration(LEASE_MARGIN_MS_MIN, LEASE_MARGIN_MS_MAX),
  }),
  pollInterval: setting({
    env: 'TASKQ_POLL_INTERVAL',
    flag: 'poll-interval',
    default: '5s',
    kind: `a length of time from ${formatDuration(POLL_INTERVAL_MS_MIN)} to ${formatDuration(POLL_INTERVAL_MS_MAX)}, such as '5s'`,
    description: 'How often a worker looks for tasks when no wake arrives.',
    schema: duration(POLL_INTERVAL_MS_MIN, POLL_INTERVAL_MS_MAX),
  }),
  shutdownGrace: setting({
    env: 'TASKQ_SHUTDOWN_GRACE',
    flag: 'grace',
    default: '0s',
    kind: `a length of time up to ${formatDuration(SHUTDOWN_GRACE_MS_MAX)}, such as '20s'`,
    description: 'How long running handlers may go on at a stop before they are aborted.',
    schema: duration(0, SHUTDOWN_GRACE_MS_MAX),
  }),
  poolMax: setting({
    env: 'TASKQ_POOL_MAX',
    flag: 'pool-max',
    default: String(POOL_MAX_DEFAULT),
    kind: `a whole number from 1 to ${SLOTS_MAX}`,
    description: 'Connections of a worker to each database at the most; LISTEN has one more.',
    schema: wholeNumber(1, SLOTS_MAX),
  }),
  preparedStatements: setting({
    env: 'TASKQ_PREPARED_STATEMENTS',
    flag: 'prepared-statements',
    default: 'true',
    kind: 'true or false',
    description: 'Named prepared statements. `false` behind PgBouncer below 1.21.',
    schema: z.union([z.boolean(), z.stringbool()]),
    boolean: true,
  }),
  logLevel: setting({
    env: 'TASKQ_LOG_LEVEL',
    flag: 'log-level',
    default: 'info',
    kind: `one of ${LOG_LEVELS.join(', ')}`,
    description: 'The least important lines that a worker logs.',
    schema: z.enum(LOG_LEVELS),
  }),
  metricsPort: setting({
    env: 'TASKQ_METRICS_PORT',
    flag: 'metrics-port',
    default: undefined,
    absent: `off; ${METRICS_PORT_DEFAULT} of \`metrics\``,
    kind: 'a port from 0 to 65535, 0 for any that is free',
    description: 'Where `/metrics`, `/healthz` and `/readyz` are served.',
    schema: wholeNumber(0, 65_535),
  }),
  metricsHost: setting({
    env: 'TASKQ_METRICS_HOST',
    flag: 'metrics-host',
    default: '127.0.0.1',
    kind: 'a name or address of this machine, such as 0.0.0.0',
    description:
      'The address that they are served on. There is no login: open it to whoever may read them only.',
    schema: z.string().min(1),
  }),
  adminPort: setting({
    env: 'TASKQ_ADMIN_PORT',
    flag: 'admin-port',
    default: String(ADMIN_PORT_DEFAULT),
    kind: 'a port from 0 to 65535, 0 for any that is free',
    description: 'Where the admin API and the dashboard are served.',
    schema: wholeNumber(0, 65_535),
  }),
  adminHost: setting({
    env: 'TASKQ_ADMIN_HOST',
    flag: 'admin-host',
    default: '127.0.0.1',
    kind: 'a name or address of this machine, such as 0.0.0.0',
    description: 'The address that they are served on. Put TLS in front of any other than this machine.',
    schema: z.string().min(1),
  }),
  adminToken: setting({
    env: 'TASKQ_ADMIN_TOKEN',
    flag: 'admin-token',
    default: undefined,
    absent: 'a read token is required then',
    kind: `a secret of ${ADMIN_TOKEN_LENGTH_MIN} characters or more`,
    description:
      'Whoever has it may look and act. From the environment, since others can see the flags of a process.',
    schema: z.string().min(ADMIN_TOKEN_LENGTH_MIN),
    secret: true,
  }),
  adminReadToken: setting({
    env: 'TASKQ_ADMIN_READ_TOKEN',
    flag: 'admin-read-token',
    default: undefined,
    absent: 'nobody may only look',
    kind: `a secret of ${ADMIN_TOKEN_LENGTH_MIN} characters or more`,
    description: 'Whoever has it may look.',
    schema: z.string().min(ADMIN_TOKEN_LENGTH_MIN),
    secret: true,
  }),
  handlers: setting({
    env: undefined,
    flag: 'handlers',
    default: undefined,
    absent: 'required by `work`',
    kind: 'the path of a module',
    description: 'The module whose default export, or export `handlers`, is what `defineHandlers` returned.',
    schema: z.string().min(1),
  }),
  cron: setting({
    env: undefined,
    flag: 'cron',
    default: undefined,
    absent: 'no cron list',
    kind: 'the path of a module',
    description: 'The module whose default export, or export `cron`, is what `defineCron` returned.',
    schema: z.string().min(1),
  }),
  definitions: setting({
    env: undefined,
    flag: 'definitions',
    default: undefined,
    absent: 'required by `codegen`',
    kind: "globs of files, such as 'src/tasks/**/*.ts'",
    description: 'The files with task definitions.',
    schema: z
      .union([z.array(z.string().min(1)), z.string().min(1)])
      .transform((globs): readonly string[] => (typeof globs === 'string' ? [globs] : globs))
      .refine((globs) => globs.length > 0),
  }),
  out: setting({
    env: undefined,
    flag: 'out',
    default: 'generated',
    kind: 'the path of a folder',
    description: 'Where the generated files lie.',
    schema: z.string().min(1),
  }),
  runtime: setting({
    env: undefined,
    flag: 'runtime',
    default: 'taskq',
    kind: 'the name of a package or the path of a file',
    description: 'What the generated files import taskq by.',
    schema: z.string().min(1),
  }),
  actor: setting({
    env: 'TASKQ_ACTOR',
    flag: 'actor',
    default: undefined,
    absent: 'cli: and the name of the user',
    kind: 'a name of 1 to 200 characters without control characters',
    description: 'Who acts, as the audit shows it.',
    schema: z.string().refine(accepts(checkActor)),
  }),
  maxPayloadBytes: setting({
    env: 'TASKQ_MAX_PAYLOAD_BYTES',
    flag: 'max-payload-bytes',
    default: String(PAYLOAD_BYTES_MAX_DEFAULT),
    kind: `a whole number of bytes from 1 to ${PAYLOAD_BYTES_MAX}`,
    description: 'The longest payload that an enqueue takes, in bytes of its stored JSON.',
    schema: wholeNumber(1, PAYLOAD_BYTES_MAX),
  }),
};

type Settings = typeof SETTINGS;
export type SettingName = keyof Settings;
type Parsed<Name extends SettingName> = z.output<Settings[Name]['schema']>;

/** Every setting after its check; lengths of time in milliseconds. */
export type Config = {
  readonly [Name in SettingName]: Settings[Name]['default'] extends string
    ? Parsed<Name>
    : Parsed<Name> | undefined;
};

/** What `taskq.config.ts` may say. */
export type TaskqConfig = {
  readonly [Name in SettingName]?: z.input<Settings[Name]['schema']> | undefined;
};

/** Where values may come from. */
export interface ConfigSources {
  readonly env: NodeJS.ProcessEnv;
  /** Where `taskq.config.ts` is looked for. */
  readonly cwd: string;
  /** What the command line gave, by setting; undefined where it gave nothing. */
  readonly flags: Readonly<Record<string, unknown>>;
  /** The configuration file named by `--config`, relative to `cwd`. */
  readonly configFile?: string | undefined;
}

/** Checks and completes a `taskq.config.ts` while it is written; answers it unchanged. */
export function defineConfig(config: TaskqConfig): TaskqConfig {
  return config;
}

/**
 * The settings named, from flags, environment, configuration file and defaults, in that order. A setting that
 * is not asked for is not checked, so that a command does not fail over a value it has no use for.
 * An environment variable that is empty counts as absent, since that is all that Compose files can say.
 * @throws TaskqError `CONFIG_INVALID` naming where the value stands, what was expected and the way out.
 *   A value that may hold a password is not shown.
 */
export async function resolveConfig<Name extends SettingName>(
  sources: ConfigSources,
  names: readonly Name[],
): Promise<Pick<Config, Name>> {
  const file = await loadConfigFile(sources);
  const resolved = names.map((name) => [name, resolve(name, sources, file)] as const);
  return Object.fromEntries(resolved) as Pick<Config, Name>;
}

/** Whether errors are shown with their stacks. */
export function isDebug(env: NodeJS.ProcessEnv): boolean {
  const value = env['TASKQ_DEBUG'];
  return value !== undefined && value !== '' && value !== '0' && value !== 'false';
}

/** `host:5432/name` of a database URL: for messages, without user and password. */
export function describeDatabase(url: string): string {
  const parsed = parseUrl(url);
  if (parsed === undefined) return 'the database';
  const socket = parsed.searchParams.get('host');
  const place = socket ?? (parsed.host || 'localhost');
  return `${place}${parsed.pathname}`;
}

/** The table of all settings for the documentation, as Markdown. */
export function renderConfigTable(): string {
  const rows = Object.entries(SETTINGS).map(
    ([name, of]: [string, Setting<z.ZodType, string | undefined>]) => {
      const shown = of.default === undefined ? (of.absent ?? '') : `\`${of.default}\``;
      const env = of.env === undefined ? '' : `\`${of.env}\``;
      return `| \`${name}\` | ${env} | \`--${of.flag}\` | ${shown} | ${of.description} Takes ${of.kind}. |`;
    },
  );
  return [
    '| key in `taskq.config.ts` | environment | flag | default | meaning |',
    '| --- | --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
}

interface ConfigFile {
  /** As the user knows it. */
  readonly name: string;
  readonly values: Readonly<Record<string, unknown>>;
}

const CONFIG_FILES = ['taskq.config.ts', 'taskq.config.js', 'taskq.config.mjs'];

async function loadConfigFile({ cwd, configFile }: ConfigSources): Promise<ConfigFile | undefined> {
  const name = configFile ?? findConfigFile(cwd);
  if (name === undefined) return undefined;
  const file = path.resolve(cwd, name);
  if (!existsSync(file)) throw invalid(`--config: there is no file ${file}`);
  let values: unknown;
  try {
    values = (await loadUserModule(file))['default'];
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw new TaskqError('CONFIG_INVALID', `${name} could not be loaded: ${message}`, { cause });
  }
  if (typeof values !== 'object' || values === null || Array.isArray(values)) {
    throw invalid(
      `${name}: its default export is no configuration; write export default defineConfig({ … })`,
    );
  }
  for (const key of Object.keys(values)) {
    if (!Object.hasOwn(SETTINGS, key)) {
      throw invalid(`${name}: there is no setting '${key}'; there are ${Object.keys(SETTINGS).join(', ')}`);
    }
  }
  return { name, values: values as Record<string, unknown> };
}

/**
 * The configuration file of a folder, by its name.
 * @throws TaskqError `CONFIG_INVALID` when there are two
 */
export function findConfigFile(cwd: string): string | undefined {
  const found = CONFIG_FILES.filter((name) => existsSync(path.join(cwd, name)));
  if (found.length > 1)
    throw invalid(`${found.join(' and ')} both exist; keep one, or name it with --config`);
  return found[0];
}

function resolve(name: SettingName, { env, flags }: ConfigSources, file: ConfigFile | undefined): unknown {
  const of: Setting<z.ZodType, string | undefined> = SETTINGS[name];
  if (flags[name] !== undefined) return check(of, flags[name], `--${of.flag}`);
  const inEnvironment = of.env === undefined ? undefined : env[of.env];
  if (inEnvironment !== undefined && inEnvironment !== '') return check(of, inEnvironment, of.env ?? '');
  const inFile = file?.values[name];
  if (inFile !== undefined) return check(of, inFile, `key \`${name}\` of ${file?.name}`);
  return of.default === undefined ? undefined : check(of, of.default, `the default of ${name}`);
}

function check(of: Setting<z.ZodType, string | undefined>, value: unknown, where: string): unknown {
  const result = of.schema.safeParse(value);
  if (result.success) return result.data;
  const received =
    of.secret === true
      ? `something else (not shown: ${of.kind.includes('URL') ? 'it may hold a password, whose special characters must be percent-encoded' : 'it is a secret'})`
      : describe(value);
  const wayOut =
    of.default === undefined ? 'correct it' : `correct it, or leave it out for the default, ${of.default}`;
  throw invalid(`${where}: expected ${of.kind}, received ${received}; ${wayOut}`);
}

function describe(value: unknown): string {
  if (typeof value === 'string') return `the text '${value}'`;
  if (Array.isArray(value)) return `a list (${value.map(String).join(', ')})`;
  if (typeof value === 'object' && value !== null) return 'an object';
  return `${typeof value} ${String(value)}`;
}

function invalid(message: string): TaskqError {
  return new TaskqError('CONFIG_INVALID', message);
}

/** A check that throws, as one that answers. */
function accepts<Value>(throwing: (value: Value) => unknown): (value: Value) => boolean {
  return (value) => {
    try {
      throwing(value);
      return true;
    } catch {
      return false;
    }
  };
}

function wholeNumber(min: number, max: number) {
  const digits = z
    .string()
    .regex(/^[0-9]{1,15}$/)
    .transform(Number);
  return z.union([z.number(), digits]).pipe(z.number().int().min(min).max(max));
}

function duration(minMs = 0, maxMs?: number) {
  const bounds = maxMs === undefined ? { minMs } : { minMs, maxMs };
  const inBounds = accepts((value: Duration) => durationMs(value, '', bounds));
  return z
    .custom<Duration>((value) => inBounds(value as Duration))
    .transform((value) => durationMs(value, '', bounds));
}

/** A list, or text that separates its members by commas. */
function names<Item extends z.ZodType<string, string>>(item: Item) {
  const text = z
    .string()
    .transform((names) => names.split(',').map((name) => name.trim()) as z.input<Item>[])
    .pipe(z.array(item).min(1));
  return z.union([z.array(item).min(1).readonly(), text]);
}

/** A record of weights, a list of names, or text of names with or without weights, separated by commas. */
function queueWeights() {
  const queue = z.string().refine(accepts((name: string) => checkName(name, 'queue')));
  const weight = wholeNumber(1, QUEUE_WEIGHT_MAX);
  const toWeights = (names: readonly string[]) =>
    Object.fromEntries(names.map((name) => [name, QUEUE_WEIGHT_DEFAULT]));
  const isNotEmpty = (weights: Readonly<Record<string, number>>) => Object.keys(weights).length > 0;
  const weights = z.record(queue, weight).refine(isNotEmpty);
  const text = z
    .string()
    .transform((list) => Object.fromEntries(list.split(',').map(nameAndWeight)))
    .pipe(weights);
  return z.union([weights, z.array(queue).min(1).readonly().transform(toWeights), text]);
}

/** `'critical=6'`. A queue's own name may hold the sign. */
function nameAndWeight(text: string): [name: string, weight: string | number] {
  const [, name, weight] = /^(.*)=\s*([0-9]+)$/s.exec(text.trim()) ?? [];
  return name === undefined || weight === undefined
    ? [text.trim(), QUEUE_WEIGHT_DEFAULT]
    : [name.trim(), weight];
}

function databaseUrl() {
  return z.string().refine((text) => {
    const url = parseUrl(text);
    if (url === undefined || !/^postgres(ql)?:$/.test(url.protocol)) return false;
    // A password whose '/', '?' or '#' is not percent-encoded ends up here, and would be shown as a name.
    return !url.pathname.includes('@') && url.hash === '';
  });
}

function parseUrl(text: string): URL | undefined {
  try {
    // libpq takes a URL with a user and without a host; the standard does not.
    return new URL(text.replace('@/', '@localhost/'));
  } catch {
    return undefined;
  }
}
