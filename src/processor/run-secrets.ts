import type { Observer, QueueEvent } from '../domain/observer.ts';
import { secretShape } from '../domain/secret-fields.ts';
import { LearnedSecrets, maskValue } from '../domain/secrets.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';

/** To be taught what is secret in the task of one run; undefined for a type that has nothing secret. */
export function runSecrets({ payload, cursor }: TaskDefinition): LearnedSecrets | undefined {
  const hasSecrets =
    secretShape(payload) !== undefined || (cursor !== undefined && secretShape(cursor) !== undefined);
  return hasSecrets ? new LearnedSecrets() : undefined;
}

/** Tells the events of one run without the secrets of its task. */
export function withoutSecrets(
  observe: Observer,
  secrets: LearnedSecrets | undefined,
  definition: TaskDefinition,
): Observer {
  if (secrets === undefined) return observe;
  return (event) => observe(told(event, secrets, definition));
}

function told(event: QueueEvent, secrets: LearnedSecrets, { cursor }: TaskDefinition): QueueEvent {
  switch (event.kind) {
    case 'slice_stopped_early': {
      // By the place and by the value: a cursor may hold what the payload calls a secret.
      const shape = cursor === undefined ? undefined : secretShape(cursor);
      const saved = secrets.value(maskValue(event.fields.cursor, shape));
      const fields = { ...(secrets.value(event.fields) as typeof event.fields), cursor: saved };
      return { ...event, error: secrets.error(event.error), fields };
    }
    case 'middleware_failed':
    case 'heartbeat_failed':
      return { ...event, error: secrets.error(event.error) };
    default:
      return event;
  }
}
