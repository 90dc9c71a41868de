import { MASKED_TEXT, maskText } from '../domain/masked-text.ts';
import { decodePayload } from '../domain/payload-codec.ts';
import type { SecretShape } from '../domain/secret-fields.ts';
import { LearnedSecrets } from '../domain/secrets.ts';
import type { ReadLane } from '../statements/lanes.ts';
import { findTypes, type RegisteredType } from '../statements/task-types.ts';

// What operators' tools show of a row. They run without the definitions of the tasks, so where the secrets of a payload
// are is what the workers have registered. Of a type (or a revision) that no worker has, nobody knows: then nothing
// that could be a secret is shown.

/** What is hidden of a row; the other fields of it are left as they are. */
export interface Maskable {
  readonly type: string;
  readonly payloadRevision: number;
  readonly payloadText: string;
  readonly cursorText?: string | undefined;
  readonly resultText?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly lastError?: string | undefined;
  readonly errors?: readonly { readonly message: string; readonly stack?: string }[];
}

/** A row as it may be shown. */
export type Masked<Row extends Maskable> = Row & {
  /**
   * False: no worker has registered the type at this revision, so payload, cursor and result are masked as a whole.
   * Its errors are shown as they are kept; a worker has hidden the secrets in them before.
   */
  readonly secretsKnown: boolean;
};

/** The rows without their secrets, by one look at what is registered. */
export async function maskRows<Row extends Maskable>(
  lane: ReadLane,
  rows: readonly Row[],
): Promise<Masked<Row>[]> {
  if (rows.length === 0) return [];
  const wanted = new Map(
    rows.map(({ type, payloadRevision: revision }) => [keyOf(type, revision), { type, revision }]),
  );
  const registered = new Map(
    (await findTypes(lane, [...wanted.values()])).map((of) => [keyOf(of.type, of.revision), of]),
  );
  return rows.map((row) => maskRow(row, registered.get(keyOf(row.type, row.payloadRevision))));
}

/** One row, for the caller that has one. */
export async function maskOne<Row extends Maskable>(
  lane: ReadLane,
  row: Row | undefined,
): Promise<Masked<Row> | undefined> {
  return row === undefined ? undefined : (await maskRows(lane, [row]))[0];
}

function maskRow<Row extends Maskable>(row: Row, registered: RegisteredType | undefined): Masked<Row> {
  const { payloadText, cursorText, resultText } = row;
  if (registered === undefined) {
    const texts = { payloadText: MASKED_TEXT, ...given({ cursorText, resultText }, () => MASKED_TEXT) };
    return { ...row, ...texts, secretsKnown: false };
  }
  const { secrets: shape, cursorSecrets } = registered;
  if (shape === undefined && cursorSecrets === undefined) return { ...row, secretsKnown: true };
  const secrets = new LearnedSecrets();
  learn(secrets, payloadText, shape);
  if (cursorText !== undefined) learn(secrets, cursorText, cursorSecrets);
  return {
    ...row,
    ...quoted(row, secrets),
    payloadText: maskText(payloadText, shape),
    ...given({ cursorText }, (text) => maskText(text, cursorSecrets)),
    ...given({ resultText }, (text) => resultWithout(secrets, text)),
    secretsKnown: true,
  };
}

/** Texts that may quote the payload: those that a worker wrote before the field was marked, too. */
function quoted({ headers, lastError, errors }: Maskable, secrets: LearnedSecrets) {
  return {
    ...given({ headers }, (of) => secrets.value(of) as typeof of),
    ...given({ lastError }, (text) => secrets.text(text)),
    ...given({ errors }, (of) => of.map((entry) => hiddenIn(entry, secrets))),
  };
}

function hiddenIn<Entry extends { readonly message: string; readonly stack?: string }>(
  entry: Entry,
  secrets: LearnedSecrets,
): Entry {
  const { message, stack } = entry;
  return {
    ...entry,
    message: secrets.text(message),
    ...(stack === undefined ? {} : { stack: secrets.text(stack) }),
  };
}

/** What a handler has said of its run. Its big numbers stay as they are unless a secret stands beside them. */
function resultWithout(secrets: LearnedSecrets, text: string): string {
  const result: unknown = JSON.parse(text);
  const told = JSON.stringify(secrets.value(result));
  return told === JSON.stringify(result) ? text : told;
}

/** The fields that the row has, changed. */
function given<Fields extends Readonly<Record<string, unknown>>>(
  fields: Fields,
  change: (value: NonNullable<Fields[keyof Fields]>) => unknown,
): Partial<Fields> {
  const changed = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => [name, change(value as NonNullable<Fields[keyof Fields]>)]);
  return Object.fromEntries(changed) as Partial<Fields>;
}

function learn(secrets: LearnedSecrets, text: string, shape: SecretShape | undefined): void {
  try {
    secrets.learn(decodePayload(text), shape);
  } catch {
    // Written by hand, under a tag that means nothing: where its secrets are cannot be told.
    secrets.learnAll(JSON.parse(text));
  }
}

const keyOf = (type: string, revision: number): string => `${revision} ${type}`;
