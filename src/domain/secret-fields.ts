import { core } from 'zod';

// Which fields of a payload are secret, told from its schema: those marked with `.meta({ taskq: 'secret' })`, and all
// that is inside of them. What a payload may hold under one name by any variant of a union counts together, so where
// schemas disagree too much is hidden rather than too little.

type Schema = core.$ZodType;

/**
 * The secrets of a schema as data, which the database can keep: a graph, since a schema may contain itself. The
 * first node is the payload. Undefined stands for a schema without a secret field.
 */
export type SecretShape = readonly SecretNode[];

/** One place of a payload: it is secret as a whole, or these of its members are, or have secrets of their own. */
export interface SecretNode {
  readonly secret?: true;
  /** What fields within a secret are called by its schema, and are no secret themselves; every other name is one. */
  readonly names?: readonly string[];
  /** Field, or place in a tuple → node. */
  readonly fields?: Readonly<Record<string, number>>;
  /** Node of every other member. */
  readonly items?: number;
}

/** A schema whose getters make ever new schemas has no end. Beyond this, what is deeper is hidden as a whole. */
const NODES_MAX = 10_000;

const shapes = new WeakMap<Schema, { readonly shape: SecretShape | undefined }>();

/** Where the secrets of a payload are; undefined when its schema marks none. */
export function secretShape(schema: Schema): SecretShape | undefined {
  let known = shapes.get(schema);
  if (known === undefined) {
    known = { shape: new ShapeBuilder().build(schema) };
    shapes.set(schema, known);
  }
  return known.shape;
}

/** Marked with `.meta({ taskq: 'secret' })`. */
export function isSecret(schema: Schema): boolean {
  // The registry is one for every copy of zod 4 in the process, so that a user's own copy is understood too.
  return (core.globalRegistry.get(schema) as { taskq?: unknown } | undefined)?.taskq === 'secret';
}

/** The schemas and everything they wrap: one mark on any of them, or on one variant of a union, is enough. */
export function layersOf(schemas: readonly Schema[]): Schema[] {
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
      // Kept by zod, where the getter itself may answer a new schema each time.
      return [(schema as core.$ZodLazy)._zod.innerType];
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

interface Members {
  readonly fields: ReadonlyMap<string, Schema>;
  /** Every other member: of an array, a record, a tuple's rest, the further fields of an object. */
  readonly items: Schema | undefined;
}

function membersOf(schema: Schema): Members {
  const { def } = (schema as core.$ZodTypes)._zod;
  switch (def.type) {
    case 'object':
      return { fields: new Map(Object.entries(def.shape)), items: def.catchall };
    case 'array':
      return { fields: new Map(), items: def.element };
    case 'tuple': {
      const places = def.items.map((item, place) => [String(place), item] as const);
      return { fields: new Map(places), items: def.rest ?? undefined };
    }
    case 'record':
    case 'map':
    case 'set':
      return { fields: new Map(), items: def.valueType };
    default:
      return { fields: new Map(), items: undefined };
  }
}

/** Names that are secret themselves: then nothing of the record is told. */
function hasSecretKeys(schema: Schema): boolean {
  const { def } = (schema as core.$ZodTypes)._zod;
  return (def.type === 'record' || def.type === 'map') && layersOf([def.keyType]).some(isSecret);
}

type MutableNode = { secret?: true; names?: string[]; fields?: Record<string, number>; items?: number };

class ShapeBuilder {
  readonly #ids = new Map<Schema, number>();
  /** Set of schemas → node, so that a schema that contains itself comes back to its own node. */
  readonly #placed = new Map<string, number>();
  readonly #nodes: MutableNode[] = [];

  build(schema: Schema): SecretShape | undefined {
    this.#place([schema]);
    return withoutHarmless(this.#nodes);
  }

  #place(schemas: readonly Schema[]): number {
    const layers = layersOf(schemas);
    const key = layers
      .map((layer) => this.#idOf(layer))
      .sort((left, right) => left - right)
      .join(' ');
    const placed = this.#placed.get(key);
    if (placed !== undefined) return placed;
    const node: MutableNode = {};
    const index = this.#nodes.push(node) - 1;
    this.#placed.set(key, index);
    if (index >= NODES_MAX || layers.some((layer) => isSecret(layer) || hasSecretKeys(layer))) {
      node.secret = true;
      const names = declaredNames(layers);
      if (names.length > 0) node.names = names;
      return index;
    }
    const members = layers.map(membersOf);
    const items = members.flatMap((of) => of.items ?? []);
    if (items.length > 0) node.items = this.#place(items);
    const names = new Set(members.flatMap(({ fields }) => [...fields.keys()]));
    // Not by assignment: a field may be called `__proto__`.
    node.fields = Object.fromEntries(
      [...names].map((name) => {
        const schemas = members.flatMap((of) => of.fields.get(name) ?? of.items ?? []);
        return [name, this.#place(schemas)];
      }),
    );
    return index;
  }

  #idOf(schema: Schema): number {
    const id = this.#ids.get(schema) ?? this.#ids.size;
    this.#ids.set(schema, id);
    return id;
  }
}

/** What a schema calls the fields of a payload, at any depth. */
export function fieldNames(schema: Schema): string[] {
  return declaredNames(layersOf([schema]));
}

function declaredNames(layers: readonly Schema[]): string[] {
  const names = new Set<string>();
  const within = new Set(layers);
  for (const layer of within) {
    if (within.size > NODES_MAX) break;
    const { fields, items } = membersOf(layer);
    for (const name of fields.keys()) names.add(name);
    for (const inner of layersOf([...fields.values(), ...(items === undefined ? [] : [items])]))
      within.add(inner);
  }
  return [...names];
}

/** Only the nodes on the way to a secret, numbered anew. */
function withoutHarmless(nodes: readonly MutableNode[]): SecretShape | undefined {
  const leads = new Set<number>();
  for (let before = -1; before !== leads.size; ) {
    before = leads.size;
    for (const [index, { secret, fields = {}, items }] of nodes.entries()) {
      const below = [...Object.values(fields), ...(items === undefined ? [] : [items])];
      if (secret === true || below.some((child) => leads.has(child))) leads.add(index);
    }
  }
  if (!leads.has(0)) return undefined;
  const kept = [...leads].sort((left, right) => left - right);
  const numbers = new Map(kept.map((index, number) => [index, number]));
  return kept.map((index) => renumbered(nodes[index] as MutableNode, numbers));
}

function renumbered(node: MutableNode, numbers: ReadonlyMap<number, number>): SecretNode {
  const { secret, fields = {}, items } = node;
  if (secret === true) return node;
  const rest = items === undefined ? undefined : numbers.get(items);
  const kept = Object.entries(fields).flatMap(([name, child]) => {
    const number = numbers.get(child);
    if (number !== undefined) return [[name, number] as const];
    // Unnamed, it would be taken for one of the rest.
    return rest === undefined ? [] : [[name, HARMLESS] as const];
  });
  return {
    ...(kept.length === 0 ? {} : { fields: Object.fromEntries(kept) }),
    ...(rest === undefined ? {} : { items: rest }),
  };
}

/** In the place of a node's number: there is nothing secret. */
const HARMLESS = -1;

/** The node of a member; undefined when nothing in it is secret. */
export function memberNode(shape: SecretShape, node: SecretNode, key: PropertyKey): SecretNode | undefined {
  const { fields = {}, items } = node;
  const name = String(key);
  const index = Object.hasOwn(fields, name) ? fields[name] : items;
  return index === undefined ? undefined : shape[index];
}
