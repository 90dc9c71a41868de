import { core, type ZodType, type z } from 'zod';
import { TaskqError } from './errors.ts';
import { withoutSecrets } from './secrets.ts';

/**
 * Parses a payload or a cursor with its schema, once.
 * @param subject what it belongs to, for the message: a task type, or `explore_purge[3]` in a bulk enqueue
 * @throws TaskqError `PAYLOAD_INVALID` naming subject, path and expectation of each issue, of a secret field its path
 *   and type only
 */
export async function checkPayload<Schema extends ZodType>(
  schema: Schema,
  value: unknown,
  subject: string,
  root = 'payload',
): Promise<z.output<Schema>> {
  const result = await parse(schema, value);
  if (result.success) return result.data;
  const told = withoutSecrets(schema, value, result.error.issues);
  const issues = told.slice(0, ISSUES_NAMED_MAX).map((issue) => describeIssue(issue, root));
  const more = told.length - issues.length;
  throw new TaskqError(
    'PAYLOAD_INVALID',
    `${subject}: ${issues.join('; ')}${more > 0 ? `; and ${more} more` : ''}`,
    { cause: told === result.error.issues ? result.error : new core.$ZodRealError([...told]) },
  );
}

// Without a pause where the schema allows it: what was checked is then what the caller encodes next.
function parse<Schema extends ZodType>(schema: Schema, value: unknown) {
  try {
    return schema.safeParse(value);
  } catch (error) {
    if (error instanceof core.$ZodAsyncError) return schema.safeParseAsync(value);
    throw error;
  }
}

/** Enough to see what is wrong; a list of a thousand bad items would fill the row. */
const ISSUES_NAMED_MAX = 5;

function describeIssue(issue: { path: readonly PropertyKey[]; message: string }, root: string): string {
  const path = issue.path.map((key) => (typeof key === 'number' ? `[${key}]` : `.${String(key)}`)).join('');
  return `${root}${path}: ${issue.message.replace(/^Invalid input: /, '')}`;
}
