import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { analysisKey, writeAnalysis } from '../handlers/index.ts';
import { type NotedEnqueues, notedTransaction } from './ledger.ts';
import { analysisOf } from './run-stack.ts';
import type { Stores } from './stores.ts';

/** A package of the lock file, as the stack it becomes. */
export interface LockedPackage {
  /** Unique in the lock file: `vitest`, or `string-width > ansi-regex` for one that lies inside another. */
  readonly name: string;
  /** Names of the packages that its own dependencies resolve to. */
  readonly dependsOn: readonly string[];
  /** What the lock file says of it, as path and value. */
  readonly facts: readonly (readonly [path: string, value: string])[];
}

/** What was loaded, in numbers. */
export interface LoadedOrganisation {
  readonly id: string;
  readonly name: string;
  readonly stacks: number;
  /** Dependencies declared by the stacks' deployments: what the graph will hold once it is reconciled. */
  readonly declaredEdges: number;
  /** Found by the stacks' first runs: what the index will hold once it is made. */
  readonly resources: number;
}

/** Below the number of packages, so that the audits have something to say. */
const SEAT_CAP = 400;
/** A statement takes 65,535 parameters; a big lock file has more. */
const ROWS_PER_INSERT = 5_000;
/** Objects written at once. */
const WRITES_AT_ONCE = 8;

const names = z.record(z.string(), z.string()).optional();
const lockedPackage = z.object({
  version: z.string().optional(),
  license: z.string().optional(),
  integrity: z.string().optional(),
  link: z.boolean().optional(),
  engines: z.union([z.record(z.string(), z.string()), z.array(z.string())]).optional(),
  bin: z.union([z.record(z.string(), z.string()), z.string()]).optional(),
  dependencies: names,
  devDependencies: names,
  optionalDependencies: names,
  peerDependencies: names,
});
const lockfile = z.object({
  name: z.string(),
  lockfileVersion: z.literal([2, 3]),
  packages: z.record(z.string(), lockedPackage),
});
type Entry = z.infer<typeof lockedPackage>;

/**
 * Reads the text of a `package-lock.json` of version 2 or 3. A dependency that is not installed (an optional peer,
 * another platform's binary) is left out, as npm leaves it out.
 * @throws ZodError for any other text that is JSON; SyntaxError for one that is not
 */
export function parseLockfile(text: string): { name: string; packages: LockedPackage[] } {
  const { name, packages } = lockfile.parse(JSON.parse(text));
  const places = new Map(Object.entries(packages).filter(([, entry]) => entry.link !== true));
  return {
    name,
    packages: [...places].map(([place, entry]) => ({
      name: stackName(name, place),
      dependsOn: [...dependenciesOf(places, place, entry)].map((found) => stackName(name, found)),
      facts: factsOf(entry, packageName(name, place)),
    })),
  };
}

function dependenciesOf(places: ReadonlyMap<string, Entry>, place: string, entry: Entry): Set<string> {
  const wanted = { ...declared(entry), ...entry.peerDependencies };
  const found = Object.keys(wanted).map((dependency) => resolvePlace(places, place, dependency));
  return new Set(found.filter((each) => each !== undefined));
}

function declared(entry: Entry): Record<string, string> {
  return { ...entry.dependencies, ...entry.devDependencies, ...entry.optionalDependencies };
}

/** Where Node would find `dependency` from `place`: in its own node_modules, then in each folder's above it. */
function resolvePlace(
  places: ReadonlyMap<string, Entry>,
  place: string,
  dependency: string,
): string | undefined {
  for (let folder = place; ; folder = folderAbove(folder)) {
    const candidate = `${folder === '' ? '' : `${folder}/`}node_modules/${dependency}`;
    if (places.has(candidate)) return candidate;
    if (folder === '') return undefined;
  }
}

function folderAbove(place: string): string {
  return place.slice(0, Math.max(0, place.lastIndexOf('/node_modules/')));
}

function stackName(organisation: string, place: string): string {
  if (place === '') return organisation;
  return place.replace(/^node_modules\//, '').replaceAll('/node_modules/', ' > ');
}

/** `string-width > ansi-regex` is the package ansi-regex, as others of that name are. */
function packageName(organisation: string, place: string): string {
  return place === ''
    ? organisation
    : place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length);
}

function factsOf(entry: Entry, name: string): [string, string][] {
  const { version, license, integrity, engines, bin } = entry;
  const single = { package: name, version, license, integrity };
  const facts = Object.entries(single).filter((fact): fact is [string, string] => fact[1] !== undefined);
  const groups = {
    engines: Array.isArray(engines) ? {} : engines,
    bin: typeof bin === 'string' ? { default: bin } : bin,
    dependencies: { ...declared(entry) },
    peerDependencies: entry.peerDependencies,
  };
  for (const [group, members] of Object.entries(groups)) {
    for (const [member, value] of Object.entries(members ?? {})) facts.push([`${group}/${member}`, value]);
  }
  return facts;
}

/** A package as the stack that is inserted, with its first run. */
interface NewStack {
  readonly id: string;
  readonly name: string;
  readonly storageKey: string;
  readonly runId: string;
  readonly dependsOn: readonly string[];
  readonly facts: LockedPackage['facts'];
}

/**
 * Loads a lock file as an organisation: its packages are stacks, their dependencies what the stacks' first runs have
 * found. The objects come first; then one transaction makes stacks of them, and enqueues what builds the graph and
 * the index from them and counts the seats.
 */
export async function loadLockfile(
  { db, objects }: Omit<Stores, 'explore'>,
  text: string,
  signal: AbortSignal,
): Promise<LoadedOrganisation> {
  const { name, packages } = parseLockfile(text);
  const id: string = randomUUID();
  const stacks = newStacks(packages);
  await eachOf(stacks, WRITES_AT_ONCE, ({ storageKey, runId, dependsOn, facts }) => {
    const resources = facts.map(([path, value]) => ({ path, value }));
    const analysis = analysisOf(runId, { dependsOn: [...dependsOn], resources });
    return writeAnalysis(objects, analysisKey(storageKey, runId), analysis, signal);
  });
  await notedTransaction(db, async (tx, tasks) => {
    await tx.insertInto('organisations').values({ id, name, seat_cap: SEAT_CAP }).execute();
    for (const some of chunks(stacks)) {
      const rows = some.map((stack) => stackRow(id, stack));
      await tx.insertInto('stacks').values(rows).execute();
      await tx.insertInto('deployments').values(some.map(deploymentRow)).execute();
    }
    await enqueueFirstTasks(
      tasks,
      id,
      stacks.map((stack) => stack.id),
    );
  });
  return {
    id,
    name,
    stacks: stacks.length,
    declaredEdges: stacks.reduce((sum, { dependsOn }) => sum + dependsOn.length, 0),
    // One more than the lock file says: the run itself.
    resources: stacks.reduce((sum, { facts }) => sum + facts.length + 1, 0),
  };
}

function newStacks(packages: readonly LockedPackage[]): NewStack[] {
  const ids = new Map(packages.map(({ name }) => [name, randomUUID() as string]));
  const idOf = (stack: string) => ids.get(stack) as string;
  return packages.map(({ name, dependsOn, facts }) => ({
    id: idOf(name),
    name,
    storageKey: randomUUID(),
    runId: randomUUID(),
    dependsOn: dependsOn.map(idOf),
    facts,
  }));
}

function stackRow(organisationId: string, { id, name, storageKey }: NewStack) {
  return { id, organisation_id: organisationId, name, storage_key: storageKey, generation: 1 };
}

function deploymentRow({ id, name, storageKey, runId, dependsOn }: NewStack) {
  return {
    stack_id: id,
    generation: 1,
    change: 'deploy' as const,
    name,
    depends_on: [...dependsOn],
    analysis_key: analysisKey(storageKey, runId),
  };
}

async function enqueueFirstTasks(
  tasks: NotedEnqueues,
  organisationId: string,
  stackIds: readonly string[],
): Promise<void> {
  const publications = stackIds.map((stackId) => ({ stackId, generation: 1 }));
  await tasks.enqueueMany('dependency_graph_reconcile', publications);
  await tasks.enqueue('resource_index_rebuild', { organisationId });
  await tasks.enqueue('seat_cap_audit', { organisationId });
}

function* chunks<Row>(rows: readonly Row[]): Generator<Row[]> {
  for (let at = 0; at < rows.length; at += ROWS_PER_INSERT) yield rows.slice(at, at + ROWS_PER_INSERT);
}

/** Calls `work` for each item, for a number of them at once. */
async function eachOf<Item>(
  items: readonly Item[],
  atOnce: number,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const rest = items.values();
  const inTurn = async () => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, inTurn));
}
