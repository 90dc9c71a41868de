import { TaskqError } from '../domain/errors.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';
import { acceptsSame, type JsonSchema, payloadSchema } from './json-schema.ts';
import { byCodeUnit } from './order.ts';

/** What the manifest keeps of one task type. */
interface ManifestEntry {
  /** Counts the payload schemas that rows may have been enqueued under; a row carries the number. */
  readonly revision: number;
  readonly schema: JsonSchema;
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
  for (const [type, { revision, schema }] of committed) next.set(type, { revision, schema, removed: true });
  for (const { type, payload } of definitions) {
    const schema = payloadSchema(payload);
    const before = committed.get(type);
    const revision =
      before === undefined ? 1 : before.revision + (acceptsSame(before.schema, schema) ? 0 : 1);
    next.set(type, { revision, schema });
  }
  return new Map([...next].sort(([left], [right]) => byCodeUnit(left, right)));
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
  return `${JSON.stringify(Object.fromEntries(manifest), null, 2)}\n`;
}

function checkEntry(entry: unknown, type: string, file: string): ManifestEntry {
  const { revision, schema, removed } = (entry ?? {}) as Record<string, unknown>;
  if (typeof revision !== 'number' || !Number.isInteger(revision) || revision < 1) {
    throw broken(file, `task type '${type}': revision must be a whole number from 1`);
  }
  if (typeof schema !== 'object' || schema === null) {
    throw broken(file, `task type '${type}': it has no schema`);
  }
  const kept = { revision, schema: schema as JsonSchema };
  return removed === true ? { ...kept, removed } : kept;
}

function broken(file: string, problem: string, cause?: unknown): TaskqError {
  return new TaskqError('CODEGEN_FAILED', `${file} cannot be read: ${problem}`, { cause });
}
