import { stackPrefix } from '../handlers/index.ts';
import type { Platform } from './platform.ts';
import type { ChangeAnswer } from './service.ts';
import type { Story } from './story.ts';

// A deleted stack comes back. Two prefix deletes are under way then: of what it had, and of what its new run has
// written before there was a deployment to own it. The live check tells the one from the other.

/** Objects that the two prefix deletes have left. */
export interface Comeback {
  readonly stack: string;
  readonly objectsOfOldPrefix: number;
  readonly objectsOfNewPrefix: number;
}

/** Deploys a deleted stack. Answers what tells, once the queue is drained, what became of its two prefixes. */
export async function bringBack(
  { stores, service }: Platform,
  stack: { readonly id: string; readonly name: string },
  story: Story,
  signal: AbortSignal,
): Promise<() => Promise<Comeback>> {
  const readPrefix = async () => {
    const { storage_key } = await stores.db
      .selectFrom('stacks')
      .select('storage_key')
      .where('id', '=', stack.id)
      .executeTakeFirstOrThrow();
    return stackPrefix(storage_key);
  };
  const oldPrefix = await readPrefix();
  const response = await fetch(`${service.url}/stacks/${stack.id}/deploy`, { method: 'POST', signal });
  const { tasks } = (await response.json()) as ChangeAnswer;
  const newPrefix = await readPrefix();
  const cleanUp = tasks.find(({ type }) => type === 'prefix_delete');
  story.say(
    `'${stack.name}' is deployed again, below a prefix of its own; before its run wrote there, prefix_delete ` +
      `${cleanUp?.id} was enqueued, in case that the deployment came to nothing`,
  );
  return async () => {
    const count = async (prefix: string) =>
      (await stores.objects.listPage(prefix, undefined, signal)).keys.length;
    const [objectsOfOldPrefix, objectsOfNewPrefix] = [await count(oldPrefix), await count(newPrefix)];
    story.say(
      `prefix_delete ${cleanUp?.id} found a live stack and deleted nothing: ${objectsOfNewPrefix} object is there; ` +
        `of the old prefix ${objectsOfOldPrefix} are left`,
    );
    return { stack: stack.name, objectsOfOldPrefix, objectsOfNewPrefix };
  };
}
