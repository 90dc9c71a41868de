import type { Handlers } from '../../generated/tasks.ts';
import type { HandlerContext } from '../index.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import type { KeyError, ObjectStore } from './object-store.ts';
import type { HandlerServices } from './services.ts';
import { storageKeyOf } from './storage-paths.ts';

// What the check below rests on: a stack that is deleted and comes back has another storage key, and so another
// prefix. Where keys can repeat (made of the second, say, with a stack made again within it), the old objects and the
// new ones share a prefix. The queue neither makes that nor mends it: the check then finds the stack live, and the
// old objects stay for as long as it does. In a bucket with versions a delete hides objects; a lifecycle rule of
// the bucket removes them.

/** Passes over a prefix before it is given up: one that deletes, one that finds nothing, one for late writers. */
const PASSES_MAX = 3;
/** Keys that an error names. */
const KEYS_NAMED_MAX = 3;

/**
 * Deletes all objects below a prefix; done without deleting any when the prefix belongs to a live stack. It can be
 * stopped anywhere and run again: what is gone is not listed any more.
 */
export function prefixDelete({
  replica,
  objects,
}: Pick<HandlerServices, 'replica' | 'objects'>): Handlers['prefix_delete'] {
  return async ({ prefix }, context) => {
    if (await belongsToLiveStack(replica, prefix, context)) return 'done';
    await deletePrefix(objects, prefix, context.signal);
    return 'done';
  };
}

// On the read lane: the task comes half an hour after what it follows from, and a replica further behind than that
// shows a deleted stack as live, which leaves objects and loses none.
function belongsToLiveStack(
  replica: HandlerServices['replica'],
  prefix: string,
  context: HandlerContext,
): Promise<boolean> {
  return deadlineTransaction(replica, context, async (tx) => {
    const owner = await tx
      .selectFrom('stacks')
      .select('id')
      .where('storage_key', '=', storageKeyOf(prefix))
      .where('deleted_at', 'is', null)
      .executeTakeFirst();
    return owner !== undefined;
  });
}

/**
 * Deletes all objects below a prefix, whoever has it.
 * @throws Error naming keys that the store would not delete, once it has tried all the others
 */
export async function deletePrefix(objects: ObjectStore, prefix: string, signal: AbortSignal): Promise<void> {
  for (let pass = 1; pass <= PASSES_MAX; pass += 1) {
    const { found, errors } = await deleteListed(objects, prefix, signal);
    if (errors.length > 0) throw notDeleted(prefix, errors);
    // Only an empty listing says that all is gone: an object may have been written behind the page being deleted,
    // or its key have meant something else to the store.
    if (found === 0) return;
  }
  throw new Error(`'${prefix}' still holds objects after ${PASSES_MAX} passes: something writes below it`);
}

async function deleteListed(
  objects: ObjectStore,
  prefix: string,
  signal: AbortSignal,
): Promise<{ found: number; errors: KeyError[] }> {
  const errors: KeyError[] = [];
  let found = 0;
  let next: string | undefined;
  do {
    const page = await objects.listPage(prefix, next, signal);
    found += page.keys.length;
    errors.push(...(await objects.deleteKeys(page.keys, signal)));
    next = page.next;
  } while (next !== undefined);
  return { found, errors };
}

function notDeleted(prefix: string, errors: readonly KeyError[]): Error {
  const named = errors
    .slice(0, KEYS_NAMED_MAX)
    .map(({ key, reason }) => `${JSON.stringify(key)} (${reason})`);
  const more = errors.length > named.length ? ` and ${errors.length - named.length} more` : '';
  return new Error(`not deleted below '${prefix}': ${named.join(', ')}${more}`);
}
