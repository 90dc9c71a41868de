import { checkPayload } from './payload-check.ts';
import { decodePayload } from './payload-codec.ts';
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
 * The row must not be of a newer revision than `task`.
 */
export async function readStoredPayload(
  { definition, revision }: RegisteredTask,
  { payloadText, payloadRevision, cursorText }: StoredPayload,
): Promise<ReadPayload> {
  const { type } = definition;
  let stage: PoisonStage = 'decode';
  try {
    const decoded = decodePayload(payloadText);
    stage = 'upgrade';
    const current = upgradePayload(definition, decoded, payloadRevision, revision);
    stage = 'payload';
    const subject = payloadRevision < revision ? `${type} (revision ${payloadRevision} → ${revision})` : type;
    const payload = await checkPayload(definition.payload, current, subject);
    if (definition.cursor === undefined || cursorText === undefined)
      return { kind: 'fits', payload, cursor: undefined };
    stage = 'cursor';
    const cursor = await checkPayload(definition.cursor, decodePayload(cursorText), type, 'cursor');
    return { kind: 'fits', payload, cursor };
  } catch (thrown) {
    return { kind: 'poison', stage, thrown };
  }
}
