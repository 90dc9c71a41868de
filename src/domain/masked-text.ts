import { decodePayload } from './payload-codec.ts';
import { memberNode, type SecretNode, type SecretShape } from './secret-fields.ts';
import { SECRET_MASK } from './secrets.ts';

// Masks a stored payload as text. Parsed and printed again, its big numbers would change, and who looks at a dead
// letter wants to see what is there. So only the places of the secrets are replaced.

/** What stands in the place of a payload of which nobody knows where its secrets are. */
export const MASKED_TEXT = JSON.stringify(SECRET_MASK);

const ENTRIES_TAG = '$taskq:entries';
const TAG_PREFIX = '$taskq:';

/** JSON text with the values of its secret fields replaced. Text that cannot be read is masked as a whole. */
export function maskText(text: string, shape: SecretShape | undefined): string {
  if (shape === undefined) return text;
  try {
    const spans: Span[] = [];
    const root = new Reader(text).read();
    collectSpans(text, root, shape, shape[0], spans);
    return replaced(text, spans);
  } catch {
    return MASKED_TEXT;
  }
}

interface Span {
  readonly from: number;
  readonly to: number;
}

/** A value in the text. */
interface Part extends Span {
  readonly kind: 'object' | 'array' | 'string' | 'plain';
  readonly members: readonly Member[];
}

interface Member {
  /** Undefined in an array. */
  readonly key: string | undefined;
  readonly part: Part;
}

function collectSpans(
  text: string,
  part: Part,
  shape: SecretShape,
  node: SecretNode | undefined,
  spans: Span[],
): void {
  if (node === undefined) return;
  if (node.secret === true || part.kind === 'string') {
    spans.push(part);
    return;
  }
  for (const { key, part: member } of membersOf(text, part, spans)) {
    collectSpans(text, member, shape, memberNode(shape, node, key), spans);
  }
}

/** The members of what the text stands for, which may be written under a tag. */
function membersOf(text: string, part: Part, spans: Span[]): readonly { key: PropertyKey; part: Part }[] {
  if (part.kind === 'array') return part.members.map(({ part: item }, key) => ({ key, part: item }));
  const [only] = part.members;
  const isTag = part.members.length === 1 && only?.key?.startsWith(TAG_PREFIX) === true;
  if (!isTag || only === undefined)
    return part.members.map(({ key = '', part: member }) => ({ key, part: member }));
  if (only.key !== ENTRIES_TAG) {
    // A date or a text of its own spelling, where something with secrets in it is expected.
    spans.push(part);
    return [];
  }
  return only.part.members.map(({ part: entry }) => {
    const [name, value] = entry.members;
    if (name === undefined || value === undefined) throw new Error('not an entry');
    return { key: String(decodePayload(text.slice(name.part.from, name.part.to))), part: value.part };
  });
}

function replaced(text: string, spans: readonly Span[]): string {
  let masked = '';
  let end = 0;
  for (const { from, to } of [...spans].sort((left, right) => left.from - right.from)) {
    masked += text.slice(end, from) + MASKED_TEXT;
    end = to;
  }
  return masked + text.slice(end);
}

const SPACE = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const PLAIN = /[-+.\w]+/y;

/** Finds the values in JSON text that PostgreSQL has checked. */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  read(): Part {
    this.#skip(SPACE);
    const from = this.#at;
    const next = this.#text[from];
    if (next === '{') return this.#container('object', '}');
    if (next === '[') return this.#container('array', ']');
    this.#skip(next === '"' ? STRING : PLAIN);
    if (this.#at === from) throw new Error('not JSON');
    return { kind: next === '"' ? 'string' : 'plain', from, to: this.#at, members: [] };
  }

  #container(kind: 'object' | 'array', close: string): Part {
    const from = this.#at;
    const members: Member[] = [];
    this.#at += 1;
    for (this.#skip(SPACE); this.#text[this.#at] !== close; this.#skip(SPACE)) {
      if (members.length > 0) this.#expect(',');
      members.push({ key: kind === 'object' ? this.#key() : undefined, part: this.read() });
    }
    this.#at += 1;
    return { kind, from, to: this.#at, members };
  }

  #key(): string {
    this.#skip(SPACE);
    const from = this.#at;
    this.#skip(STRING);
    const key: unknown = JSON.parse(this.#text.slice(from, this.#at));
    this.#skip(SPACE);
    this.#expect(':');
    return String(key);
  }

  #expect(sign: string): void {
    if (this.#text[this.#at] !== sign) throw new Error('not JSON');
    this.#at += 1;
  }

  #skip(pattern: RegExp): void {
    pattern.lastIndex = this.#at;
    if (pattern.test(this.#text)) this.#at = pattern.lastIndex;
  }
}
