import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { type NotedEnqueues, notedTransaction } from './ledger.ts';
import type { DemoDatabase } from './schema.ts';

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
  readonly exploreRows: number;
}

/** Below the number of packages, so that the audits have something to say. */
const SEAT_CAP = 400;
/** A statement takes 65,535 parameters; a big lock file has more. */
const ROWS_PER_INSERT = 5_000;

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
      facts: factsOf(entry),
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

function factsOf(entry: Entry): [string, string][] {
  const { version, license, integrity, engines, bin } = entry;
  const single = { version, license, integrity };
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

/**
 * Loads a lock file as an organisation: its packages are stacks, their dependencies what the stacks' first
 * deployments declare. One transaction, which enqueues what builds the graph from that and counts the seats.
 */
export async function loadLockfile(db: DemoDatabase, text: string): Promise<LoadedOrganisation> {
  const { name, packages } = parseLockfile(text);
  const id = randomUUID();
  const ids = new Map(packages.map((each) => [each.name, randomUUID() as string]));
  const idOf = (stack: string) => ids.get(stack) as string;
  const stacks = packages.map((each) => ({
    id: idOf(each.name),
    organisation_id: id,
    name: each.name,
    generation: 1,
  }));
  const deployments = packages.map((each) => ({
    stack_id: idOf(each.name),
    generation: 1,
    change: 'deploy' as const,
    name: each.name,
    depends_on: each.dependsOn.map(idOf),
  }));
  const exploreRows = packages.flatMap((each) =>
    each.facts.map(([path, value]) => ({ stack_id: idOf(each.name), path, value })),
  );
  await notedTransaction(db, async (tx, tasks) => {
    await tx.insertInto('organisations').values({ id, name, seat_cap: SEAT_CAP }).execute();
    for (const rows of chunks(stacks)) await tx.insertInto('stacks').values(rows).execute();
    for (const rows of chunks(deployments)) await tx.insertInto('deployments').values(rows).execute();
    for (const rows of chunks(exploreRows)) await tx.insertInto('explore_rows').values(rows).execute();
    await enqueueFirstTasks(tasks, id, [...ids.values()]);
  });
  const declaredEdges = deployments.reduce((sum, { depends_on }) => sum + depends_on.length, 0);
  return { id, name, stacks: stacks.length, declaredEdges, exploreRows: exploreRows.length };
}

async function enqueueFirstTasks(
  tasks: NotedEnqueues,
  organisationId: string,
  stackIds: readonly string[],
): Promise<void> {
  const publications = stackIds.map((stackId) => ({ stackId, generation: 1 }));
  await tasks.enqueueMany('dependency_graph_reconcile', publications);
  await tasks.enqueue('seat_cap_audit', { organisationId });
}

function* chunks<Row>(rows: readonly Row[]): Generator<Row[]> {
  for (let at = 0; at < rows.length; at += ROWS_PER_INSERT) yield rows.slice(at, at + ROWS_PER_INSERT);
}
