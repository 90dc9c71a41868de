import path from 'node:path';
import { TaskqError } from '../domain/errors.ts';
import { generatedHeader } from './header.ts';
import { enqueueFunctionName, isIdentifier, pascalCase } from './identifiers.ts';
import type { LoadedDefinition } from './load-definitions.ts';
import { type Manifest, schemasOf } from './manifest.ts';
import { byCodeUnit } from './order.ts';
import { quote } from './quote.ts';
import { payloadType } from './render-payload-type.ts';
import type { ImportExtension } from './tsconfig.ts';

export { quote };

export interface RenderTasksOptions {
  /** For the header. */
  readonly globs: readonly string[];
  /** Absolute: imports are relative to it. */
  readonly outDir: string;
  /** What taskq is imported by: a package name, or a relative specifier. */
  readonly runtime: string;
  /** The PostgreSQL schema that the rows live in. */
  readonly schema: string;
  /** The longest payload, in bytes; undefined for the default. */
  readonly maxPayloadBytes?: number | undefined;
  readonly importExtension: ImportExtension;
}

/** Names of the generated module; an import of the same name is given another. */
const OWN_NAMES = [
  ...['createEnqueuer', 'createRegistry', 'defineHandlers', 'enqueue', 'enqueueMany', 'enqueuer', 'tasks'],
  ...['createCron', 'defineCron', 'CronEntries', 'CronEntry'],
  ...['makeEnqueue', 'AsyncIterable', 'EnqueuedCounts', 'Enqueuer', 'EnqueuerOptions', 'Iterable', 'Omit'],
  ...['CallerTransaction', 'Enqueued', 'EnqueueOptions', 'HandlerRegistry', 'Handlers', 'HandlersFor'],
  ...[
    'InputOf',
    'OutputOf',
    'PayloadInput',
    'PayloadOutput',
    'PayloadPath',
    'Promise',
    'RegisteredTask',
    'Tasks',
    'TaskType',
  ],
];

/** Words that cannot be an import's name in a module, though they can be an export's. */
const RESERVED_WORDS = new Set(
  (
    'arguments await break case catch class const continue debugger default delete do else enum eval export ' +
    'extends false finally for function if implements import in instanceof interface let new null package ' +
    'private protected public return static super switch this throw true try typeof undefined var void while ' +
    'with yield'
  ).split(' '),
);

/** Longer lists of imports are broken, so that a diff shows which name came or went. */
const LINE_WIDTH = 100;

interface Entry {
  readonly type: string;
  readonly revision: number;
  readonly functionName: string;
  /** The definition's name in the generated module. */
  readonly local: string;
  readonly exportName: string;
  readonly specifier: string;
}

/** The text of `generated/tasks.ts`. Pure: the same definitions give the same bytes on every machine. */
export function renderTasks(
  definitions: readonly LoadedDefinition[],
  manifest: Manifest,
  options: RenderTasksOptions,
): string {
  const entries = toEntries(definitions, manifest, options);
  const sections = [
    renderImports(entries, options),
    renderTaskSet(entries),
    renderTypes(),
    renderEnqueuer(options),
    ...entries.map(renderFunction),
    renderHandlers(entries),
    renderCron(options),
    ...renderRevisions(entries, manifest, options),
  ];
  return `${generatedHeader(options.globs)}/* eslint-disable */\n\n${sections.join('\n\n')}\n`;
}

/**
 * `src/tasks/purge.ts` seen from `generated` → `../src/tasks/purge.ts`, whatever the platform's separator.
 * @param api the platform's path functions; a parameter for tests
 * @throws TaskqError `CODEGEN_FAILED` when no relative import can reach the file
 */
export function importSpecifier(
  outDir: string,
  file: string,
  extension: ImportExtension,
  api: Pick<typeof path, 'relative' | 'isAbsolute'> = path,
): string {
  const relative = api.relative(outDir, file);
  if (api.isAbsolute(relative)) {
    throw new TaskqError(
      'CODEGEN_FAILED',
      `${file} is on another drive than ${outDir}: no import reaches it`,
    );
  }
  const posix = relative.replaceAll('\\', '/');
  // Node reads a specifier as a URL, TypeScript as a path: with these the two would mean different files.
  if (/[#?%]/.test(posix)) {
    throw new TaskqError('CODEGEN_FAILED', `${file} cannot be imported: rename it without '#', '?' and '%'`);
  }
  const specifier = withExtension(posix, extension);
  return specifier.startsWith('../') ? specifier : `./${specifier}`;
}

function withExtension(file: string, extension: ImportExtension): string {
  if (extension === '.ts') return file;
  // Without an extension no resolution finds a `.mts` or `.cts` source.
  const emitted = file.replace(/\.([cm])ts$/, '.$1js').replace(/\.[jt]sx?$/, '.js');
  return extension === 'none' ? emitted.replace(/\.js$/, '') : emitted;
}

function toEntries(
  definitions: readonly LoadedDefinition[],
  manifest: Manifest,
  options: RenderTasksOptions,
): Entry[] {
  const sorted = [...definitions].sort((a, b) => byCodeUnit(a.definition.type, b.definition.type));
  const aliases = sorted.map(({ definition }) => `definition${pascalCase(definition.type)}`);
  const functionNames = sorted.map(({ definition }) => enqueueFunctionName(definition.type));
  const taken = new Set([...OWN_NAMES, ...aliases, ...functionNames, ...RESERVED_WORDS]);
  const uses = new Map<string, number>();
  for (const { exportName } of sorted) uses.set(exportName, (uses.get(exportName) ?? 0) + 1);
  return sorted.map(({ definition, exportName, file }, at) => {
    const usable = isIdentifier(exportName) && !taken.has(exportName) && uses.get(exportName) === 1;
    return {
      type: definition.type,
      revision: manifest.get(definition.type)?.revision ?? 1,
      functionName: functionNames[at] as string,
      local: usable ? exportName : (aliases[at] as string),
      exportName,
      specifier: importSpecifier(options.outDir, file, options.importExtension),
    };
  });
}

function renderImports(entries: readonly Entry[], { runtime }: RenderTasksOptions): string {
  const bySpecifier = new Map<string, string[]>();
  for (const { exportName, local, specifier } of entries) {
    const imported = isIdentifier(exportName) ? exportName : quote(exportName);
    const names = bySpecifier.get(specifier) ?? [];
    bySpecifier.set(specifier, [...names, imported === local ? local : `${imported} as ${local}`]);
  }
  const imports = [...bySpecifier]
    .sort(([left], [right]) => byCodeUnit(left, right))
    .map(([specifier, names]) => renderImport(names.sort(byCodeUnit), specifier));
  return [
    `import {
  type CallerTransaction,
  createCron,
  createEnqueuer,
  createRegistry,
  type CronEntries,
  type CronEntry,
  type Enqueued,
  type EnqueuedCounts,
  type EnqueueOptions,
  type Enqueuer,
  type EnqueuerOptions,
  type HandlerRegistry,
  type HandlersFor,
  type PayloadInput as InputOf,
  type PayloadOutput as OutputOf,
  type PayloadPath,
${entries.length === 0 ? '' : '  type RegisteredTask,\n'}} from ${quote(runtime)};`,
    ...imports,
  ].join('\n');
}

function renderImport(names: readonly string[], specifier: string): string {
  const line = `import { ${names.join(', ')} } from ${quote(specifier)};`;
  if (line.length <= LINE_WIDTH) return line;
  return `import {\n${names.map((name) => `  ${name},\n`).join('')}} from ${quote(specifier)};`;
}

function renderTaskSet(entries: readonly Entry[]): string {
  const types = entries.map(
    ({ type, local }) => `  readonly ${propertyKey(type)}: RegisteredTask<typeof ${local}>;`,
  );
  const values = entries.map(
    ({ type, local, revision }) => `  ${propertyKey(type)}: { definition: ${local}, revision: ${revision} },`,
  );
  return [
    '/** Every task type with its definition and the revision of its payload schema. */',
    `export type Tasks = ${block(types)};`,
    '',
    `export const tasks: Tasks = ${block(values)};`,
  ].join('\n');
}

function renderTypes(): string {
  return `export type TaskType = keyof Tasks;

/** What an enqueue of the type takes. */
export type PayloadInput<Type extends TaskType> = InputOf<Tasks[Type]['definition']>;

/** What the type's handler receives. */
export type PayloadOutput<Type extends TaskType> = OutputOf<Tasks[Type]['definition']>;`;
}

function renderEnqueuer({ schema, maxPayloadBytes }: RenderTasksOptions): string {
  const limit = maxPayloadBytes === undefined ? '' : `, maxPayloadBytes: ${maxPayloadBytes}`;
  return `const enqueuer = createEnqueuer(tasks, { schema: ${quote(schema)}${limit} });

/**
 * Enqueues a task in the caller's transaction: it exists exactly when that transaction commits.
 * @throws TaskqError, before anything is written, for a payload or an option that does not fit
 */
export function enqueue<Type extends TaskType>(
  tx: CallerTransaction,
  type: Type,
  payload: PayloadInput<Type>,
  options?: EnqueueOptions<PayloadPath<PayloadInput<Type>>>,
): Promise<Enqueued> {
  return enqueuer.enqueue(tx, type, payload, options);
}

/** Enqueues a task for each payload, any number of them, in the caller's transaction. Answers in their order. */
export function enqueueMany<Type extends TaskType>(
  tx: CallerTransaction,
  type: Type,
  payloads: readonly PayloadInput<Type>[],
  options?: EnqueueOptions<PayloadPath<PayloadInput<Type>>>,
): Promise<Enqueued[]>;
/** What an iterable yields is read, inserted and let go batch by batch: an error must roll the transaction back. */
export function enqueueMany<Type extends TaskType>(
  tx: CallerTransaction,
  type: Type,
  payloads: Iterable<PayloadInput<Type>> | AsyncIterable<PayloadInput<Type>>,
  options?: EnqueueOptions<PayloadPath<PayloadInput<Type>>>,
): Promise<EnqueuedCounts>;
export function enqueueMany<Type extends TaskType>(
  tx: CallerTransaction,
  type: Type,
  payloads: Iterable<PayloadInput<Type>> | AsyncIterable<PayloadInput<Type>>,
  options?: EnqueueOptions<PayloadPath<PayloadInput<Type>>>,
): Promise<Enqueued[] | EnqueuedCounts> {
  return enqueuer.enqueueMany(tx, type, payloads, options);
}

/**
 * \`enqueue\` and \`enqueueMany\` with the application's own settings, such as middleware. Make them once and enqueue
 * through them: the other functions of this module have none.
 */
export function makeEnqueue(options: Omit<EnqueuerOptions, 'schema'>): Enqueuer<Tasks> {
  return createEnqueuer(tasks, { schema: ${quote(schema)}${limit}, ...options });
}`;
}

function renderFunction({ type, functionName }: Entry): string {
  return `export function ${functionName}(
  tx: CallerTransaction,
  payload: PayloadInput<${quote(type)}>,
  options?: EnqueueOptions<PayloadPath<PayloadInput<${quote(type)}>>>,
): Promise<Enqueued> {
  return enqueue(tx, ${quote(type)}, payload, options);
}`;
}

function renderHandlers(entries: readonly Entry[]): string {
  // Without a task type `HandlersFor` is the empty object type, which takes any handler.
  const handlers = entries.length === 0 ? 'HandlersFor<Tasks> & Record<string, never>' : 'HandlersFor<Tasks>';
  return `/** One handler for each task type, none missing and none too many. */
export type Handlers = ${handlers};

/** Joins the handlers to their definitions, for a worker. */
export function defineHandlers(handlers: Handlers): HandlerRegistry<Tasks> {
  return createRegistry(tasks, handlers);
}`;
}

function renderCron({ maxPayloadBytes }: RenderTasksOptions): string {
  const options =
    maxPayloadBytes === undefined ? 'options' : `{ maxPayloadBytes: ${maxPayloadBytes}, ...options }`;
  return `/**
 * Checks the cron list, for a worker: which task is enqueued when. \`options\` are for its enqueues, such as middleware.
 */
export function defineCron(
  entries: readonly CronEntry<Tasks>[],
  options: Omit<EnqueuerOptions, 'schema'> = {},
): CronEntries {
  return createCron(tasks, entries, ${options});
}`;
}

/** For `upgrades`, in the definitions: they import nothing from here, so it is taskq's own interface that is added to. */
function renderRevisions(
  entries: readonly Entry[],
  manifest: Manifest,
  { runtime }: RenderTasksOptions,
): string[] {
  if (entries.length === 0) return [];
  const types = entries.flatMap(({ type }) => {
    const entry = manifest.get(type);
    if (entry === undefined) return [];
    const revisions = [...schemasOf(entry)].map(
      ([revision, schema]) => `      ${revision}: ${payloadType(schema, '      ')};`,
    );
    // Computed, as in a value, it would be no property of an interface.
    const key = type === '__proto__' ? quote(type) : propertyKey(type);
    return [`    ${key}: {`, ...revisions, '    };'];
  });
  return [
    [
      '/** What rows of each revision hold, for the `upgrades` of the definitions. */',
      `declare module ${quote(runtime)} {`,
      '  interface PayloadRevisions {',
      ...types,
      '  }',
      '}',
    ].join('\n'),
  ];
}

function block(lines: readonly string[]): string {
  return lines.length === 0 ? '{}' : `{\n${lines.join('\n')}\n}`;
}

/** `__proto__:` in an object literal, even in quotes, sets the prototype; computed, it is a property. */
function propertyKey(type: string): string {
  if (type === '__proto__') return `[${quote(type)}]`;
  return /^[A-Za-z_$][\w$]*$/.test(type) ? type : quote(type);
}
