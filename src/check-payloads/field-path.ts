import type { core } from 'zod';
import { isSecret, layersOf } from '../domain/secret-fields.ts';

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
