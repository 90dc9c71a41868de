import { TaskqError } from '../domain/errors.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';
import { acceptsSame, type JsonSchema, payloadSchema } from './json-schema.ts';
import { byCodeUnit } from './order.ts';

/** A breaking change that needs no upgrade, in the words of whoever knew. */
export interface Acceptance {
  /** The revision that the change led to. */
  readonly revision: number;
  readonly reason: string;
}

/** What the manifest keeps of one task type. */
export interface ManifestEntry {
  /** Counts the payload schemas that rows may have been enqueued under; a row carries the number. */
  readonly revision: number;
  /** Of the current revision. */
  readonly schema: JsonSchema;
  /** Revision → schema of the earlier ones. Those from before manifests kept them are missing. */
  readonly history?: Readonly<Record<number, JsonSchema>>;
  readonly accepted?: readonly Acceptance[];
  /** The type is gone. Kept, since a type that comes back must not give an old number to a new schema. */
  readonly removed?: true;
}

/** Task type → entry. A map, not an object: a type may be called `__proto__`. */
export type Manifest = ReadonlyMap<string, ManifestEntry>;

/** The manifest after the committed one, for the definitions at hand. Pure. */
export function nextManifest(
  committed: Manifest,
  definitions: readonly Pick<TaskDefinition, 'type' | 'payload'>[],
): Manifest {
  const next = new Map<string, ManifestEntry>();
  for (const [type, entry] of committed) next.set(type, { ...entry, removed: true });
  for (const { type, payload } of definitions) {
    next.set(type, nextEntry(committed.get(type), payloadSchema(payload)));
  }
  return new Map([...next].sort(([left], [right]) => byCodeUnit(left, right)));
}

function nextEntry(before: ManifestEntry | undefined, schema: JsonSchema): ManifestEntry {
  if (before === undefined) return { revision: 1, schema };
  const { removed: _, ...kept } = before;
  if (acceptsSame(before.schema, schema)) return { ...kept, schema };
  const history = { ...before.history, [before.revision]: before.schema };
  return { ...kept, revision: before.revision + 1, schema, history };
}

/** The manifest with further acceptances of one type; an earlier one of the same revision is replaced. Pure. */
export function withAccepted(manifest: Manifest, type: string, accepted: readonly Acceptance[]): Manifest {
  const entry = manifest.get(type);
  if (entry === undefined || accepted.length === 0) return manifest;
  const revisions = new Set(accepted.map(({ revision }) => revision));
  const kept = (entry.accepted ?? []).filter(({ revision }) => !revisions.has(revision));
  const all = [...kept, ...accepted].sort((left, right) => left.revision - right.revision);
  return new Map(
    [...manifest].map(([name, other]) => [name, name === type ? { ...other, accepted: all } : other]),
  );
}

/** Revision → schema, oldest first, the current one last. */
export function schemasOf({ revision, schema, history = {} }: ManifestEntry): Map<number, JsonSchema> {
  const earlier = Object.entries(history).map(([number, old]) => [Number(number), old] as const);
  return new Map([...earlier.sort(([left], [right]) => left - right), [revision, schema]]);
}

/**
 * Reads `payloads.json`.
 * @throws TaskqError `CODEGEN_FAILED` for text that is no manifest, such as one with a merge conflict in it
 */
export function parseManifest(text: string, file: string): Manifest {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    throw broken(file, `${(cause as Error).message}; is a merge conflict left in it?`, cause);
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw broken(file, 'expected an object of task types');
  }
  const entries = Object.entries(parsed).map(
    ([type, entry]) => [type, checkEntry(entry, type, file)] as const,
  );
  return new Map(entries.sort(([left], [right]) => byCodeUnit(left, right)));
}

export function renderManifest(manifest: Manifest): string {
  const entries = [...manifest].map(([type, { revision, schema, history, accepted, removed }]) => {
    // In this order, whoever changed the entry last.
    return [type, { revision, schema, history, accepted, removed }] as const;
  });
  return `${JSON.stringify(Object.fromEntries(entries), null, 2)}\n`;
}

function checkEntry(entry: unknown, type: string, file: string): ManifestEntry {
  const { revision, schema, history, accepted, removed } = (entry ?? {}) as Record<string, unknown>;
  const refuse = (problem: string) => broken(file, `task type '${type}': ${problem}`);
  if (!isRevision(revision)) throw refuse('revision must be a whole number from 1');
  if (typeof schema !== 'object' || schema === null) throw refuse('it has no schema');
  if (history !== undefined && !isHistory(history, revision)) {
    throw refuse(`history must hold schemas of revisions before ${revision}`);
  }
  if (accepted !== undefined && !isAccepted(accepted)) {
    throw refuse('accepted must be a list of revisions with a reason each');
  }
  return {
    revision,
    schema: schema as JsonSchema,
    ...(history === undefined ? {} : { history }),
    ...(accepted === undefined ? {} : { accepted }),
    ...(removed === true ? { removed } : {}),
  };
}

function isRevision(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1;
}

function isHistory(value: unknown, revision: number): value is Record<number, JsonSchema> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  return Object.entries(value).every(
    ([number, schema]) =>
      /^[1-9]\d*$/.test(number) && Number(number) < revision && typeof schema === 'object' && schema !== null,
  );
}

function isAccepted(value: unknown): value is Acceptance[] {
  if (!Array.isArray(value)) return false;
  return value.every((item: unknown) => {
    const { revision, reason } = (item ?? {}) as Record<string, unknown>;
    return isRevision(revision) && typeof reason === 'string' && reason.trim() !== '';
  });
}

function broken(file: string, problem: string, cause?: unknown): TaskqError {
  return new TaskqError('CODEGEN_FAILED', `${file} cannot be read: ${problem}`, { cause });
}
