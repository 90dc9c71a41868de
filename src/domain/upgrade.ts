import { TaskqError } from './errors.ts';
import type { TaskDefinition } from './task-definition.ts';

/**
 * Brings a stored payload from the revision it was enqueued under to a later one. A step without an upgrade leaves
 * it as it is: where the schemas are compatible none is needed, and where they are not the parse that follows says so.
 * @throws TaskqError `PAYLOAD_INVALID` for an upgrade that throws (with what it threw as cause) or answers no payload
 */
export function upgradePayload(
  definition: Pick<TaskDefinition, 'type' | 'upgrades'>,
  value: unknown,
  fromRevision: number,
  toRevision: number,
): unknown {
  let payload = value;
  for (let revision = fromRevision + 1; revision <= toRevision; revision += 1) {
    const upgrade = Object.hasOwn(definition.upgrades, revision) ? definition.upgrades[revision] : undefined;
    if (upgrade === undefined) continue;
    const of = `${definition.type}: the upgrade of revision ${revision - 1} → ${revision}`;
    try {
      payload = upgrade(payload);
    } catch (cause) {
      throw new TaskqError('PAYLOAD_INVALID', `${of} threw`, { cause });
    }
    // The one is a forgotten `return`, the other would be parsed as an empty object.
    if (payload === undefined || payload instanceof Promise) {
      const answer = payload === undefined ? 'nothing' : 'a promise';
      throw new TaskqError('PAYLOAD_INVALID', `${of} answered ${answer}; it must return the payload`);
    }
  }
  return payload;
}
