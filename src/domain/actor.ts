import { TaskqError } from './errors.ts';
import { NAME_LENGTH_MAX } from './limits.ts';

/** Who acts, where a program says nothing else. */
export const ACTOR_DEFAULT = 'operator';

/**
 * The name of whoever acts, once it is known to be fit for the audit: 1 to 200 characters, none of them a control.
 * @throws TaskqError `CONFIG_INVALID`
 */
export function checkActor(actor: unknown): string {
  const isFit =
    typeof actor === 'string' &&
    actor.trim() !== '' &&
    actor.length <= NAME_LENGTH_MAX &&
    // An audit is read line by line, and PostgreSQL stores no lone surrogate.
    !/[\p{Cc}\u2028\u2029]/u.test(actor) &&
    actor.isWellFormed();
  if (isFit) return actor;
  throw new TaskqError(
    'CONFIG_INVALID',
    `actor: expected a name of 1 to ${NAME_LENGTH_MAX} characters without control characters`,
  );
}
