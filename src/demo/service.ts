import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { z } from 'zod';
import { stackPrefix } from '../handlers/index.ts';
import { PREFIX_DELETE_DELAY } from '../tasks/prefix-delete.ts';
import { deleteAtOnce, purgeAtOnce } from './inline-clean-up.ts';
import { type EnqueuedTask, notedTransaction, RolledBack } from './ledger.ts';
import { runStack } from './run-stack.ts';
import type { DemoDatabase } from './schema.ts';
import {
  type ChangedStack,
  deleteStack,
  deployStack,
  Refused,
  renameStack,
  type StackChange,
} from './stack-changes.ts';
import type { ServiceStores } from './stores.ts';
import { sweepFleet } from './sweep.ts';

// The HTTP service of the platform. A request that changes a stack is one transaction: the change and the tasks that
// follow from it commit together or not at all. Nothing here waits for a task.

export interface Service {
  readonly url: string;
  close(): Promise<void>;
}

/** The answer to a change. `committed` false: a rule refused it, and `tasks` were rolled back with it. */
export interface ChangeAnswer {
  readonly committed: boolean;
  readonly tasks: readonly EnqueuedTask[];
  readonly stack?: ChangedStack;
  readonly reason?: string;
}

interface Answer {
  readonly status: number;
  readonly body: object;
}

const BODY_BYTES_MAX = 65_536;
const stackId = z.uuid();
const deployBody = z.strictObject({ dependsOn: z.array(z.uuid()).optional() });
const renameBody = z.strictObject({ name: z.string().trim().min(1).max(200) });

/** Starts the service on a free port of this machine only. */
export async function startService(stores: ServiceStores): Promise<Service> {
  const server = createServer((request, response) => void respond(stores, request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, close: () => close(server) };
}

async function respond(
  stores: ServiceStores,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.once('close', () => gone.abort(new Error('the caller is gone')));
  const { status, body } = await answerTo(stores, request, gone.signal).catch(asAnswer);
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(body, undefined, 2)}\n`);
}

async function answerTo(
  stores: ServiceStores,
  request: IncomingMessage,
  signal: AbortSignal,
): Promise<Answer> {
  const url = new URL(request.url ?? '/', 'http://service');
  const [collection, id, action] = url.pathname.split('/').slice(1);
  const { method } = request;
  if (collection === 'sweep' && method === 'POST') return { status: 200, body: await sweepFleet(stores.db) };
  if (collection !== 'stacks') return notFound;
  if (id === undefined && method === 'GET') {
    return { status: 200, body: { stacks: await listStacks(stores.db) } };
  }
  if (!stackId.safeParse(id).success) return notFound;
  const route = `${method} ${action ?? ''}`;
  if (route === 'POST deploy') {
    const { dependsOn } = deployBody.parse(await readJson(request));
    return deploy(stores, id as string, dependsOn, signal);
  }
  if (route === 'POST rename') {
    const { name } = renameBody.parse(await readJson(request));
    return change(stores, id as string, (stack) => renameStack(stack, name));
  }
  if (route === 'DELETE ') {
    const force = url.searchParams.get('force') === 'true';
    const answer = await change(stores, id as string, (stack) => deleteStack(stack, force));
    const purge = answer.body.tasks.find(({ type }) => type === 'explore_purge');
    const isInline = url.searchParams.get('purge') === 'inline';
    if (isInline && purge !== undefined) await purgeAtOnce(stores, id as string, purge);
    return answer;
  }
  return notFound;
}

const notFound: Answer = {
  status: 404,
  body: {
    reason: 'no such route',
    routes: [
      'GET /stacks',
      'POST /stacks/:id/deploy {"dependsOn"?: [ids]}',
      'POST /stacks/:id/rename {"name"}',
      'DELETE /stacks/:id?force=true&purge=inline',
      'POST /sweep',
    ],
  },
};

/** A deployment that a rule refuses leaves nothing: what its run has written below a prefix of its own goes at once. */
async function deploy(
  stores: ServiceStores,
  id: string,
  dependsOn: readonly string[] | undefined,
  signal: AbortSignal,
): Promise<Answer> {
  const run = await runStack(stores, id, dependsOn, signal);
  try {
    return await change(stores, id, (stack) => deployStack(stack, run), run.tasks);
  } catch (error) {
    const [cleanUp] = run.tasks;
    if (error instanceof RolledBack && cleanUp !== undefined) {
      await deleteAtOnce(stores, stackPrefix(run.storageKey), cleanUp);
    }
    throw error;
  }
}

/** @param before what was enqueued in transactions of their own, before this one */
async function change(
  { db, prefixDeleteDelay = PREFIX_DELETE_DELAY }: ServiceStores,
  id: string,
  apply: (stack: StackChange) => Promise<ChangedStack>,
  before: readonly EnqueuedTask[] = [],
): Promise<{ status: 200; body: ChangeAnswer }> {
  const { result, tasks } = await notedTransaction(db, (tx, noted) =>
    apply({ tx, tasks: noted, stackId: id, prefixDeleteDelay }),
  );
  const body: ChangeAnswer = { committed: true, stack: result, tasks: [...before, ...tasks] };
  return { status: 200, body };
}

function asAnswer(error: unknown): Answer {
  if (error instanceof z.ZodError || error instanceof SyntaxError) {
    return { status: 400, body: { reason: error.message } };
  }
  if (error instanceof Refused) return asAnswer(new RolledBack([], error));
  if (!(error instanceof RolledBack)) return { status: 500, body: { reason: String(error) } };
  const { tasks, cause } = error;
  const status = cause instanceof Refused ? cause.status : 500;
  const reason = cause instanceof Error ? cause.message : String(cause);
  return { status, body: { committed: false, reason, tasks } satisfies ChangeAnswer };
}

async function listStacks(db: DemoDatabase) {
  const rows = await db
    .selectFrom('stacks')
    .select(['id', 'name', 'generation', 'published_generation', 'deleted_at'])
    .orderBy('name')
    .execute();
  return rows.map((row) => ({
    id: row.id,
    name: row.name,
    generation: row.generation,
    publishedGeneration: row.published_generation,
    live: row.deleted_at === null,
  }));
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) {
    text += chunk;
    if (text.length > BODY_BYTES_MAX) throw new SyntaxError('the body is too long');
  }
  return text === '' ? {} : JSON.parse(text);
}

async function close(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await closed;
}
