import type { z } from 'zod';
import { ADMIN_BODY_BYTES_MAX } from '../domain/limits.ts';
import { nameOfSegment } from './contracts.ts';
import { AdminProblem } from './problems.ts';
import type { Route } from './routes.ts';

/** Whether the path can be decoded; one that cannot would come out of a decoder as something else. */
export function isEncoded(request: Request): boolean {
  try {
    decodeURIComponent(new URL(request.url).pathname);
    return true;
  } catch {
    return false;
  }
}

/** Parameters, query and body of a route, checked by its contracts. @throws AdminProblem `REQUEST_INVALID` and others */
export async function readInput(
  route: Route,
  request: Request,
  params: Readonly<Record<string, string>>,
): Promise<{ params: unknown; query: unknown; body: unknown }> {
  const names = Object.entries(params).map(([name, segment]) => [name, nameOfSegment(segment)]);
  const body = request.method === 'GET' || request.method === 'HEAD' ? undefined : await readJson(request);
  return {
    params: parsed(route.params, Object.fromEntries(names), 'path'),
    query: parsed(route.query, queryOf(request), 'query'),
    body: route.body === undefined ? requireNone(body) : parsed(route.body, body, 'body'),
  };
}

export function parsed<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  place: string,
): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  // The path of a field and zod's own words: neither quotes what was sent, but for the names of unknown fields.
  const problems = result.error.issues.map((issue) => {
    if (issue.code === 'unrecognized_keys') return `${place}: holds what the contract does not have`;
    const field = issue.path.length === 0 ? place : `${place}, ${issue.path.map(String).join('.')}`;
    return `${field}: ${issue.message}`;
  });
  throw new AdminProblem('REQUEST_INVALID', problems.slice(0, PROBLEMS_MAX).join('; '));
}

/** A person reads them. */
const PROBLEMS_MAX = 5;

function queryOf(request: Request): Record<string, string> {
  const query: Record<string, string> = Object.create(null);
  for (const [name, value] of new URL(request.url).searchParams) {
    if (name in query) throw new AdminProblem('REQUEST_INVALID', 'query: a parameter stands there twice');
    query[name] = value;
  }
  return { ...query };
}

/** `{}` is what some clients send for nothing. */
function requireNone(body: unknown): undefined {
  const isNone =
    body === undefined || (typeof body === 'object' && body !== null && Object.keys(body).length === 0);
  if (!isNone) throw new AdminProblem('REQUEST_INVALID', 'body: this route takes none');
  return undefined;
}

/** Undefined for no body. @throws AdminProblem `MEDIA_TYPE`, `BODY_TOO_LARGE`, `REQUEST_INVALID` */
export async function readJson(request: Request): Promise<unknown> {
  const text = await readText(request);
  if (text === '') return undefined;
  // A form of another site can send no such type.
  const type = request.headers.get('content-type')?.split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json') throw new AdminProblem('MEDIA_TYPE');
  try {
    return JSON.parse(text);
  } catch {
    throw new AdminProblem('REQUEST_INVALID', 'body: not JSON');
  }
}

async function readText(request: Request): Promise<string> {
  if (request.body === null) return '';
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  // Counted as it comes: what the client says of its length may be wrong, or missing.
  for await (const chunk of request.body as unknown as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > ADMIN_BODY_BYTES_MAX) throw new AdminProblem('BODY_TOO_LARGE');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
