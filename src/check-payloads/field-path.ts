import { core } from 'zod';

// The way to a field, told from the schema alone. What a record's keys, a payload's extra fields and everything
// within a secret field are called is data of the row: it stands as `*`, or not at all.

type Schema = core.$ZodType;

export interface FieldPath {
  /** Such as `payload.seats[3].name`; it ends at a secret field. */
  readonly text: string;
  readonly isSecret: boolean;
}

interface Step {
  readonly schemas: readonly Schema[];
  /** The schema itself names the step, or it is a place in a list. */
  readonly isNamed: boolean;
}

/** Describes where an issue of `schema` lies, from `root` on. */
export function describePath(schema: Schema, path: readonly PropertyKey[], root: string): FieldPath {
  let text = root;
  let here = layersOf([schema]);
  for (const key of path) {
    if (here.some(isSecret)) break;
    const steps = here.flatMap((layer) => stepInto(layer, key));
    const isNamed = steps.some((step) => step.isNamed);
    if (typeof key === 'number') text += isNamed ? `[${key}]` : '[*]';
    else text += isNamed ? `.${String(key)}` : '.*';
    here = layersOf(steps.flatMap((step) => step.schemas));
  }
  return { text, isSecret: here.some(isSecret) };
}

/** Marked with `.meta({ taskq: 'secret' })`. */
function isSecret(schema: Schema): boolean {
  // The registry is one for every copy of zod 4 in the process, so that a user's own copy is understood too.
  return (core.globalRegistry.get(schema) as { taskq?: unknown } | undefined)?.taskq === 'secret';
}

/** The schemas and everything they wrap: one mark on any of them, or on one variant of a union, is enough. */
function layersOf(schemas: readonly Schema[]): Schema[] {
  const layers = new Set(schemas);
  // A Set is iterated over what is added on the way, too; a schema that wraps itself adds nothing.
  for (const layer of layers) for (const inner of wrappedBy(layer)) layers.add(inner);
  return [...layers];
}

function wrappedBy(schema: Schema): readonly Schema[] {
  const { def } = (schema as core.$ZodTypes)._zod;
  switch (def.type) {
    case 'optional':
    case 'nullable':
    case 'nonoptional':
    case 'default':
    case 'prefault':
    case 'catch':
    case 'readonly':
    case 'success':
    case 'promise':
      return [def.innerType];
    case 'lazy':
      return [def.getter()];
    case 'pipe':
      return [def.in, def.out];
    case 'union':
      return def.options;
    case 'intersection':
      return [def.left, def.right];
    default:
      return [];
  }
}

function stepInto(schema: Schema, key: PropertyKey): Step[] {
  const { def } = (schema as core.$ZodTypes)._zod;
  switch (def.type) {
    case 'object': {
      if (typeof key === 'string' && Object.hasOwn(def.shape, key))
        return [{ schemas: [def.shape[key] as Schema], isNamed: true }];
      return def.catchall === undefined ? [] : [{ schemas: [def.catchall], isNamed: false }];
    }
    case 'array':
      return [{ schemas: [def.element], isNamed: typeof key === 'number' }];
    case 'tuple': {
      const member = typeof key === 'number' ? (def.items[key] ?? def.rest) : null;
      return member === null ? [] : [{ schemas: [member], isNamed: true }];
    }
    case 'record': {
      const isNamed = typeof key !== 'symbol' && def.keyType._zod.values?.has(key) === true;
      return [{ schemas: [def.valueType], isNamed }];
    }
    case 'map':
    case 'set':
      return [{ schemas: [def.valueType], isNamed: false }];
    default:
      return [];
  }
}
