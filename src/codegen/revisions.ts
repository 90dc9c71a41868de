import { TaskqError } from '../domain/errors.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';
import { type Breaking, compareSchemas } from './compatibility.ts';
import { type Manifest, type ManifestEntry, schemasOf, withAccepted } from './manifest.ts';

/** A step between two revisions that rows of the older one might not survive, or an upgrade that never runs. */
export interface RevisionProblem {
  readonly type: string;
  readonly from: number;
  readonly to: number;
  /** Empty for an upgrade to a revision that there is not. */
  readonly breaking: readonly Breaking[];
  /** For a person: the change and the ways out, in several lines. */
  readonly message: string;
}

/** What `--accept` was given. */
export interface AcceptRequest {
  readonly type: string;
  readonly reason: string;
}

type Definition = Pick<TaskDefinition, 'type' | 'upgrades'>;

/**
 * Every step of every defined type that breaks and has neither an upgrade nor an acceptance. All of them, not the
 * last one alone: rows may wait for months, and where the manifest was written already the last step looks settled.
 */
export function findProblems(definitions: readonly Definition[], manifest: Manifest): RevisionProblem[] {
  return definitions.flatMap(({ type, upgrades }) => {
    const entry = manifest.get(type);
    if (entry === undefined) return [];
    const steps = breakingSteps(entry).filter(({ to }) => !Object.hasOwn(upgrades, to));
    const unknown = Object.keys(upgrades)
      .map(Number)
      .filter((revision) => revision > entry.revision);
    return [
      ...steps.map((step) => ({ type, ...step, message: describeBreaking(type, step) })),
      ...unknown.map((to) => ({
        type,
        from: to - 1,
        to,
        breaking: [],
        message: `task type '${type}': upgrades[${to}] never runs, the payload is at revision ${entry.revision}`,
      })),
    ];
  });
}

/** What `next` looks at that `committed` let pass unseen; for a person, one line each. */
export function findCautions(committed: Manifest, next: Manifest): string[] {
  return [...next].flatMap(([type, entry]) => {
    const before = committed.get(type);
    if (before === undefined || before.revision === entry.revision) return [];
    const { cautions } = compareSchemas(before.schema, entry.schema);
    return cautions.map(
      ({ path, why }) => `task type '${type}', ${path}: ${why}; taskq check-payloads tells`,
    );
  });
}

/**
 * The manifest with the breaking steps of the named types accepted, those that have no upgrade.
 * @throws TaskqError `OPTION_INVALID` for a type that is not defined or has nothing to accept, and for no reason
 */
export function acceptSteps(
  definitions: readonly Definition[],
  manifest: Manifest,
  requests: readonly AcceptRequest[],
): Manifest {
  let accepted = manifest;
  for (const { type, reason } of requests) {
    if (reason.trim() === '') throw refusal(type, 'give a reason; it is kept in the manifest');
    const definition = definitions.find((other) => other.type === type);
    if (definition === undefined) throw refusal(type, 'no such task type is defined');
    const steps = findProblems([definition], accepted).filter(({ breaking }) => breaking.length > 0);
    if (steps.length === 0) throw refusal(type, 'there is no breaking change without an upgrade');
    const acceptances = steps.map(({ to }) => ({ revision: to, reason: reason.trim() }));
    accepted = withAccepted(accepted, type, acceptances);
  }
  return accepted;
}

function refusal(type: string, problem: string): TaskqError {
  return new TaskqError('OPTION_INVALID', `accept '${type}': ${problem}`);
}

interface Step {
  readonly from: number;
  readonly to: number;
  readonly breaking: readonly Breaking[];
}

function breakingSteps(entry: ManifestEntry): Step[] {
  const schemas = schemasOf(entry);
  const accepted = new Set(entry.accepted?.map(({ revision }) => revision));
  return [...schemas].flatMap(([to, schema]) => {
    const before = schemas.get(to - 1);
    if (before === undefined || accepted.has(to)) return [];
    const { breaking } = compareSchemas(before, schema);
    return breaking.length === 0 ? [] : [{ from: to - 1, to, breaking }];
  });
}

function describeBreaking(type: string, { from, to, breaking }: Step): string {
  return [
    `task type '${type}': rows of revision ${from} may not fit revision ${to}`,
    ...breaking.flatMap((change) => [
      `  ${change.path}: ${change.why}`,
      `    old  ${change.old}`,
      `    new  ${change.new}`,
    ]),
    '  Two ways out:',
    `    write how they become new ones, in its defineTask:  upgrades: { ${to}: (old) => ({ ...old }) }`,
    `    or, if no such row can wait anywhere:  taskq codegen --accept ${shellWord(type)} --reason "why"`,
  ].join('\n');
}

function shellWord(text: string): string {
  return /^[\w:.,/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
