import { secretShape } from '../domain/secret-fields.ts';
import type { HandlerRegistry } from '../domain/task-set.ts';
import type { TaskTypeFacts } from '../statements/task-types.ts';

/** What a replica says about the types that it runs. */
export function typeFacts(registry: HandlerRegistry): TaskTypeFacts[] {
  return [...registry].map(([type, { definition, revision }]) => ({
    type,
    revision,
    secrets: secretShape(definition.payload),
    cursorSecrets: definition.cursor === undefined ? undefined : secretShape(definition.cursor),
    ceilingMs: definition.ceilingMs,
    maxAttempts: definition.maxAttempts,
  }));
}
