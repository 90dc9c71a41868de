import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse, request as send } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';
import { type ObjectStore, type ObjectStoreSettings, openObjectStore } from '../../../src/handlers/index.ts';

/** A request as the store would get it. */
export interface StoreRequest {
  readonly kind: 'list' | 'delete batch' | 'delete' | 'get' | 'put';
  readonly url: URL;
  readonly body: string;
}

/** What stands between client and store does instead of passing the request on; undefined: it passes it on. */
export type Fault = (request: StoreRequest) => FaultyAnswer | undefined;
export type FaultyAnswer = 'hang' | { readonly status: number; readonly xml: string };

export interface FaultyStore {
  readonly objects: ObjectStore;
  readonly requests: readonly StoreRequest[];
  fault: Fault;
}

/** The store of `settings`, behind a server that can answer in its place. Closed when the test is over. */
export async function startFaultyStore(
  settings: ObjectStoreSettings & { readonly endpoint: string },
  fault: Fault = () => undefined,
): Promise<FaultyStore> {
  const requests: StoreRequest[] = [];
  const server = createServer((request, response) => void serve(request, response));
  const serve = async (incoming: IncomingMessage, response: ServerResponse) => {
    const body = await buffer(incoming);
    const request = describe(incoming, body);
    requests.push(request);
    const answer = store.fault(request);
    if (answer === 'hang') return;
    if (answer === undefined) pass(settings.endpoint, incoming, body, response);
    else response.writeHead(answer.status, { 'content-type': 'application/xml' }).end(answer.xml);
  };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const objects = openObjectStore({ ...settings, endpoint: `http://127.0.0.1:${port}` });
  const store: FaultyStore = { objects, requests, fault };
  onTestFinished(() => {
    objects.close();
    server.close();
    server.closeAllConnections();
  });
  return store;
}

function describe({ method, url = '/' }: IncomingMessage, body: Buffer): StoreRequest {
  const parsed = new URL(url, 'http://store');
  const isBucket = parsed.pathname.split('/').filter((part) => part !== '').length === 1;
  const kinds = {
    GET: isBucket ? 'list' : 'get',
    POST: 'delete batch',
    DELETE: 'delete',
    PUT: 'put',
  } as const;
  return { kind: kinds[method as keyof typeof kinds], url: parsed, body: body.toString('utf8') };
}

function pass(endpoint: string, incoming: IncomingMessage, body: Buffer, response: ServerResponse): void {
  const { method, url = '/', headers } = incoming;
  const outgoing = send(new URL(endpoint).origin, { method, path: url, headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 500, answer.headers);
    answer.pipe(response);
  });
  outgoing.on('error', () => response.destroy());
  outgoing.end(body);
}

/** How the protocol says that it has failed. */
export function failure(status: number, code: string): FaultyAnswer {
  return {
    status,
    xml: `<?xml version="1.0"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`,
  };
}

/** Number of keys that a batch delete names. */
export function keysInBatch({ body }: StoreRequest): number {
  return body.split('<Key>').length - 1;
}
