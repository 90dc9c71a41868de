import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { TaskqError } from '../domain/errors.ts';
import type { Health } from '../domain/health.ts';
import { describeThrown } from '../domain/thrown.ts';
import type { Metrics } from './metrics.ts';

// Read-only, and for machines: GET alone, no word of an error of the database, whose text may name hosts and users.

export interface EndpointOptions {
  readonly metrics: Metrics;
  /** What `/readyz` answers for: ready when all are. */
  readonly apps?: readonly { health(): Health | Promise<Health> }[];
  /** What is in front of the paths, such as `'/internal'`. Default nothing. */
  readonly basePath?: string;
}

/** The endpoints for a server of the application's own. */
export interface Endpoints {
  /** For servers that speak in `Request` and `Response`. Answers 404 for every other path. */
  fetch(request: Request): Promise<Response>;
  /** For `node:http`, Express and the like. */
  listener(request: IncomingMessage, response: ServerResponse): void;
}

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

const TEXT = 'text/plain; charset=utf-8';
const JSON_TYPE = 'application/json; charset=utf-8';

/**
 * `GET /metrics` for Prometheus, `GET /healthz` (200 while the process answers) and `GET /readyz`: 200 once every app
 * has checked its schema, listens and looks for tasks, else 503 with the reasons as JSON.
 */
export function metricsHandler(options: EndpointOptions): Endpoints {
  const { basePath = '' } = options;
  const answer = async (method: string, path: string): Promise<Answer> => {
    const endpoint = path.startsWith(basePath) ? ENDPOINTS[path.slice(basePath.length)] : undefined;
    if (endpoint === undefined) return { status: 404, type: TEXT, body: 'not found\n' };
    if (method !== 'GET' && method !== 'HEAD') return { status: 405, type: TEXT, body: 'only GET\n' };
    try {
      return await endpoint(options);
    } catch {
      return { status: 500, type: TEXT, body: 'the answer could not be made\n' };
    }
  };
  return {
    async fetch(request) {
      const { status, type, body } = await answer(request.method, new URL(request.url).pathname);
      return new Response(request.method === 'HEAD' ? null : body, {
        status,
        headers: headersOf(status, type),
      });
    },
    listener(request, response) {
      const [path = ''] = (request.url ?? '').split('?');
      void answer(request.method ?? '', path).then(({ status, type, body }) => {
        response.writeHead(status, { ...headersOf(status, type), 'content-length': Buffer.byteLength(body) });
        response.end(body);
      });
    },
  };
}

function headersOf(status: number, type: string): Record<string, string> {
  const headers = { 'content-type': type, 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' };
  return status === 405 ? { ...headers, allow: 'GET, HEAD' } : headers;
}

type Endpoint = (options: EndpointOptions) => Promise<Answer>;

const ENDPOINTS: Readonly<Record<string, Endpoint | undefined>> = Object.assign(Object.create(null), {
  '/metrics': async ({ metrics }) => {
    const body = await metrics.render();
    return { status: 200, type: metrics.registry.contentType, body };
  },
  '/healthz': async () => ({ status: 200, type: TEXT, body: 'ok\n' }),
  '/readyz': async ({ apps = [] }) => {
    const problems = (await Promise.all(apps.map((app) => app.health()))).flatMap((each) => each.problems);
    const ready = problems.length === 0;
    return {
      status: ready ? 200 : 503,
      type: JSON_TYPE,
      body: `${JSON.stringify({ ready, problems })}\n`,
    };
  },
} satisfies Record<string, Endpoint>);

export interface ServerOptions extends EndpointOptions {
  /** 0 for any that is free. */
  readonly port: number;
  /** Default `'127.0.0.1'`: whoever wants it reachable says so. */
  readonly host?: string;
}

export interface MetricsServer {
  /** Without a path: `http://127.0.0.1:9464`. */
  readonly url: string;
  /** Ends open connections too. */
  close(): Promise<void>;
}

/**
 * Serves the endpoints on a port of their own. It does not keep the process alive.
 * @throws TaskqError `CONFIG_INVALID` when the port cannot be had
 */
export async function startMetricsServer(options: ServerOptions): Promise<MetricsServer> {
  const { port, host = '127.0.0.1' } = options;
  const server = createServer(metricsHandler(options).listener);
  try {
    await listening(server, port, host);
  } catch (cause) {
    const { message } = describeThrown(cause);
    throw new TaskqError('CONFIG_INVALID', `metrics: cannot serve on ${host}:${port}: ${message}`, { cause });
  }
  server.unref();
  return {
    url: `http://${shownHost(host)}:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function listening(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

function shownHost(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
