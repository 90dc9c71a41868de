import { z } from 'zod';
import { VERSION } from '../domain/version.ts';
import { API_PATH, type ComponentName, components } from './contracts.ts';
import { PROBLEMS, type ProblemCode } from './problems.ts';
import type { Route } from './routes.ts';

type Json = Readonly<Record<string, unknown>>;

/** What every route may refuse with. */
const COMMON: readonly ProblemCode[] = [
  'REQUEST_INVALID',
  'UNAUTHENTICATED',
  'CROSS_SITE',
  'RATE_LIMITED',
  'INTERNAL',
  'DATABASE_UNAVAILABLE',
];
const OF_ACTING: readonly ProblemCode[] = ['FORBIDDEN', 'BODY_TOO_LARGE', 'MEDIA_TYPE'];

/** The OpenAPI 3.1 document of the API, made of the contracts that the server checks. */
export function openApiDocument(routes: readonly Route[], basePath: string): Json {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(route) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'taskq admin API',
      version: VERSION,
      description:
        'What an operator sees of a taskq and does to it. A name in a path is percent-encoded once; the names `.` and ' +
        '`..`, which no URL can carry, are written `~.` and `~..`.',
    },
    servers: [{ url: `${basePath}${API_PATH}` }],
    security: [{ bearer: [] }, { session: [] }],
    paths: { ...paths, ...OWN_PATHS },
    components: {
      schemas: componentSchemas(),
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        session: { type: 'apiKey', in: 'cookie', name: 'taskq_session' },
      },
    },
  };
}

function operationOf(route: Route): Json {
  const { name, summary, params, query, body, answer, role } = route;
  const parameters = [...parametersOf(params, 'path'), ...parametersOf(query, 'query')];
  return {
    operationId: name,
    summary,
    'x-role': role,
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: { 'application/json': { schema: schemaOf(body, 'input') } },
          },
        }),
    responses: {
      200: { description: summary, content: { 'application/json': { schema: schemaOf(answer, 'output') } } },
      ...refusals([...COMMON, ...(route.method === 'GET' ? [] : OF_ACTING), ...route.problems]),
    },
  };
}

/** By status, with the codes that a status may stand for. */
function refusals(codes: readonly ProblemCode[]): Json {
  const byStatus = new Map<number, ProblemCode[]>();
  for (const code of codes) {
    const { status } = PROBLEMS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const content = { 'application/problem+json': { schema: reference('Problem') } };
  return Object.fromEntries(
    [...byStatus].map(([status, of]) => {
      const description = of.map((code) => `\`${code}\`: ${PROBLEMS[code].title}`).join('; ');
      return [status, { description, content }];
    }),
  );
}

function parametersOf(object: z.ZodObject, place: 'path' | 'query'): Json[] {
  return Object.entries(object.shape).map(([name, field]) => {
    const { description, ...schema } = schemaOf(field as z.ZodType, 'input') as Record<string, unknown>;
    const isOptional = (field as z.ZodType).safeParse(undefined).success;
    return {
      name,
      in: place,
      required: place === 'path' || !isOptional,
      ...(description === undefined ? {} : { description }),
      schema,
    };
  });
}

const REFERENCE = '#/components/schemas/';
const reference = (name: string): Json => ({ $ref: `${REFERENCE}${name}` });

function schemaOf(schema: z.ZodType, io: 'input' | 'output'): Json {
  const component = Object.entries(components).find(([, of]) => (of as z.ZodType) === schema);
  if (component !== undefined) return reference(component[0]);
  const { $schema: _, ...json } = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Record<
    string,
    unknown
  >;
  return json;
}

/** What is read from a request: a field with a default may be left out there. */
const REQUESTS: readonly ComponentName[] = ['BulkRequest', 'DeadFilter', 'LoginRequest', 'WeightRequest'];

function componentSchemas(): Json {
  const registry = z.registry<{ id: string }>();
  for (const [name, schema] of Object.entries(components)) registry.add(schema, { id: name });
  const converted = (['input', 'output'] as const).map(
    (io) => z.toJSONSchema(registry, { io, uri: (id) => `${REFERENCE}${id}` }).schemas,
  );
  return Object.fromEntries(
    (Object.keys(components) as ComponentName[]).map((name) => {
      const { $schema: _, $id: __, ...schema } = converted[REQUESTS.includes(name) ? 0 : 1]?.[name] ?? {};
      return [name, schema];
    }),
  );
}

const sessionAnswer = {
  description: 'Who is logged in',
  content: { 'application/json': { schema: reference('Session') } },
};

/** The server's own routes, which answer otherwise than by one function. */
const OWN_PATHS: Json = {
  '/session': {
    get: {
      operationId: 'readSession',
      summary: 'Who asks, and what they may',
      responses: { 200: sessionAnswer, ...refusals(COMMON) },
    },
  },
  '/login': {
    post: {
      operationId: 'logIn',
      summary: 'Exchange a token for the cookie of a session',
      security: [],
      requestBody: { required: true, content: { 'application/json': { schema: reference('LoginRequest') } } },
      responses: { 200: sessionAnswer, ...refusals([...COMMON, ...OF_ACTING]) },
    },
  },
  '/logout': {
    post: {
      operationId: 'logOut',
      summary: 'End the session',
      responses: { 204: { description: 'Ended' }, ...refusals(COMMON) },
    },
  },
  '/events': {
    get: {
      operationId: 'listenToEvents',
      summary: 'Server-sent events: overview, operation, problem',
      responses: {
        200: { description: 'A stream', content: { 'text/event-stream': { schema: { type: 'string' } } } },
        ...refusals([...COMMON, 'BUSY']),
      },
    },
  },
  '/openapi.json': {
    get: {
      operationId: 'readOpenApi',
      summary: 'This document',
      responses: {
        200: { description: 'OpenAPI 3.1', content: { 'application/json': { schema: { type: 'object' } } } },
        ...refusals(COMMON),
      },
    },
  },
};
