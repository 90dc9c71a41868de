import { checkPayload } from './payload-check.ts';
import { decodePayload } from './payload-codec.ts';
import { fieldNames, secretShape } from './secret-fields.ts';
import type { LearnedSecrets } from './secrets.ts';
import type { RegisteredTask } from './task-set.ts';
import { upgradePayload } from './upgrade.ts';

/** What a row holds of its task, as the database gives it. */
export interface StoredPayload {
  readonly payloadText: string;
  readonly payloadRevision: number;
  readonly cursorText: string | undefined;
}

/** Where a row turned out to be poison. */
export type PoisonStage = 'decode' | 'upgrade' | 'payload' | 'cursor';

/** A row as its handler would get it, or why it never can: what does not parse now never will. */
export type ReadPayload =
  | { readonly kind: 'fits'; readonly payload: unknown; readonly cursor: unknown }
  | { readonly kind: 'poison'; readonly stage: PoisonStage; readonly thrown: unknown };

/**
 * Decodes a row, brings it to the current revision and parses it: the one parse that makes what a handler is
 * promised. A worker and `taskq check-payloads` share it, so that the one foretells what the other does. Never throws.
 * The row must not be of a newer revision than `task`. `secrets` learns on the way what must not be told of it.
 */
export async function readStoredPayload(
  { definition, revision }: RegisteredTask,
  { payloadText, payloadRevision, cursorText }: StoredPayload,
  secrets?: LearnedSecrets,
): Promise<ReadPayload> {
  const { type } = definition;
  let stage: PoisonStage = 'decode';
  try {
    // Where an older revision had its secrets is not known, nor where they are in what cannot be decoded.
    if (payloadRevision < revision)
      secrets?.learnAll(JSON.parse(payloadText), fieldNames(definition.payload));
    const decoded = decodePayload(payloadText);
    stage = 'upgrade';
    const current = upgradePayload(definition, decoded, payloadRevision, revision);
    secrets?.learn(current, secretShape(definition.payload));
    stage = 'payload';
    const subject = payloadRevision < revision ? `${type} (revision ${payloadRevision} → ${revision})` : type;
    const payload = await checkPayload(definition.payload, current, subject);
    // What the handler gets, and may quote, is what the schema has made of it.
    secrets?.learn(payload, secretShape(definition.payload));
    if (definition.cursor === undefined || cursorText === undefined)
      return { kind: 'fits', payload, cursor: undefined };
    stage = 'cursor';
    const stored = decodePayload(cursorText);
    secrets?.learn(stored, secretShape(definition.cursor));
    const cursor = await checkPayload(definition.cursor, stored, type, 'cursor');
    secrets?.learn(cursor, secretShape(definition.cursor));
    return { kind: 'fits', payload, cursor };
  } catch (thrown) {
    if (stage === 'decode') secrets?.learnAll(JSON.parse(payloadText), fieldNames(definition.payload));
    return { kind: 'poison', stage, thrown };
  }
}
