import type { AddressInfo } from 'node:net';
import { createAdaptorServer } from '@hono/node-server';
import { type Context, Hono } from 'hono';
import { TaskqError } from '../domain/errors.ts';
import type { Logger } from '../domain/logger.ts';
import { describeThrown, toError } from '../domain/thrown.ts';
import { type AppClock, systemClock, systemTimers, type Timers } from '../domain/time.ts';
import { type Operator, type OperatorOptions, openOperator } from '../operator.ts';
import type { CronEntries } from '../scheduler/entries.ts';
import { type AdminAction, actionRoutes } from './actions.ts';
import {
  type Admitted,
  Auth,
  type AuthOptions,
  refuseCrossSite,
  requireRole,
  sessionCookie,
  sessionSecret,
} from './auth.ts';
import { API_PATH, loginBody, type Wire } from './contracts.ts';
import { LiveEvents } from './live-events.ts';
import { openApiDocument } from './openapi.ts';
import { Operations } from './operations.ts';
import { Overviews } from './overview.ts';
import { AdminProblem, problemOf, problemResponse } from './problems.ts';
import { isEncoded, parsed, readInput, readJson } from './requests.ts';
import { ROUTES, type Route, type RouteContext } from './routes.ts';

/** A file of the dashboard. */
export interface Asset {
  readonly body: string | Uint8Array<ArrayBuffer>;
  readonly contentType: string;
}

/** Finds a file by its path below the base path, `'/'` for the page itself; undefined when there is none. */
export type Assets = (path: string) => Promise<Asset | undefined> | Asset | undefined;

export interface AdminOptions extends Omit<OperatorOptions, 'actor'> {
  /** A token that may act; 16 characters at the least. */
  readonly token?: string;
  /** A token that may only look. */
  readonly readToken?: string;
  /** The application's own sign-on. `actor` is who stands in the audit, after `api:`. */
  readonly authorize?: NonNullable<AuthOptions['authorize']>;
  /** What is in front of every path, such as `'/taskq'`. Default nothing. */
  readonly basePath?: string;
  /** What `defineCron` returned: for the next ticks, and to run an entry now. */
  readonly cron?: CronEntries;
  /** Routes of the application's own, made by `adminAction`. */
  readonly actions?: readonly AdminAction[];
  /** The web page; without it there is the API alone. */
  readonly assets?: Assets;
  /** Whose failed logins are counted together; default: the address of the connection, when `listen` serves. */
  readonly clientAddress?: (request: Request) => string | undefined;
  /** Hears of what went wrong. Default: nobody. */
  readonly logger?: Logger;
  readonly clock?: AppClock;
  readonly timers?: Timers;
}

/** The admin API and its page. */
export interface Admin {
  /** For every server that speaks in `Request` and `Response`. */
  fetch(request: Request): Promise<Response>;
  /**
   * Serves on a port of its own; 0 for any that is free.
   * @throws TaskqError `CONFIG_INVALID` when the port cannot be had
   */
  listen(on: { readonly port: number; readonly host?: string }): Promise<{ readonly url: string }>;
  /** An address, below that of the handler, that logs in once within a quarter of an hour. */
  loginPath(): string;
  /** Ends streams, connections, bulk operations, and its own connections to the database. */
  close(): Promise<void>;
}

/**
 * Opens the admin API. It is closed by default.
 * @throws TaskqError `CONFIG_INVALID` without a token and without `authorize`; else as `openOperator`
 */
export async function createAdmin(options: AdminOptions): Promise<Admin> {
  const { clock = systemClock, timers = systemTimers } = options;
  // Before any connection: what can admit nobody, or anybody, must not start.
  const auth = new Auth({ ...options, clock });
  const routes = [...ROUTES, ...actionRoutes(options.actions ?? [])];
  const basePath = checkBasePath(options.basePath ?? '');
  const operator = await openOperator({ ...options, actor: 'api' });
  return new AdminServer({ options, auth, routes, basePath, operator, clock, timers });
}

interface Parts {
  readonly options: AdminOptions;
  readonly auth: Auth;
  readonly routes: readonly Route[];
  readonly basePath: string;
  readonly operator: Operator;
  readonly clock: AppClock;
  readonly timers: Timers;
}

/** What the node adapter adds to a request. */
interface Bindings {
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string } };
}

type RequestContext = Context<{ Bindings: Bindings }>;

class AdminServer implements Admin {
  readonly #parts: Parts;
  readonly #overviews: Overviews;
  readonly #operations: Operations;
  readonly #events: LiveEvents;
  readonly #hono: Hono<{ Bindings: Bindings }>;
  readonly #servers = new Set<ReturnType<typeof createAdaptorServer>>();
  #closing: Promise<void> | undefined;

  constructor(parts: Parts) {
    const { operator, clock, timers } = parts;
    this.#parts = parts;
    this.#overviews = new Overviews(operator.pages, clock);
    this.#events = new LiveEvents(this.#overviews, clock, timers);
    this.#operations = new Operations(clock, timers, (operation) => {
      this.#overviews.forget();
      this.#events.publish('operation', operation);
    });
    this.#hono = this.#router();
  }

  fetch(request: Request): Promise<Response> {
    return this.#answer(request, {});
  }

  async listen({ port, host = '127.0.0.1' }: { port: number; host?: string }): Promise<{ url: string }> {
    const server = createAdaptorServer({
      fetch: (request, bindings) => this.#answer(request, bindings as Bindings),
      overrideGlobalObjects: false,
    });
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen(port, host, () => {
          server.off('error', reject);
          resolve();
        });
      });
    } catch (cause) {
      const { message } = describeThrown(cause);
      throw new TaskqError('CONFIG_INVALID', `admin: cannot serve on ${host}:${port}: ${message}`, { cause });
    }
    this.#servers.add(server);
    const { port: bound } = server.address() as AddressInfo;
    const shown = host.includes(':') ? `[${host}]` : host;
    return { url: `http://${shown}:${bound}${this.#parts.basePath}/` };
  }

  loginPath(): string {
    const once = this.#parts.auth.sessions.makeOnce({ actor: 'link', role: 'act' });
    return `${this.#parts.basePath}/login?once=${once}`;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#events.close();
    const stopped = [...this.#servers].map(
      (server) =>
        new Promise<void>((resolve) => {
          server.close(() => resolve());
          if ('closeAllConnections' in server) server.closeAllConnections();
        }),
    );
    await this.#operations.close();
    await Promise.all(stopped);
    await this.#parts.operator.close();
  }

  async #answer(request: Request, bindings: Bindings): Promise<Response> {
    const answer = isEncoded(request)
      ? await this.#hono.fetch(request, bindings)
      : problemResponse(new AdminProblem('REQUEST_INVALID', 'path: its percent signs mean nothing'));
    const headers = new Headers(answer.headers);
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) headers.set(name, value);
    return new Response(answer.body, { status: answer.status, headers });
  }

  #router(): Hono<{ Bindings: Bindings }> {
    const { routes, basePath } = this.#parts;
    // As it was sent, not decoded: Hono decodes each parameter once, after a name has become one.
    const hono = new Hono<{ Bindings: Bindings }>({ getPath: (request) => new URL(request.url).pathname });
    hono.onError((error) => this.#refused(error));
    hono.notFound(() => problemResponse(new AdminProblem('NOT_FOUND', 'there is no such route')));
    const api = `${basePath}${API_PATH}`;
    for (const route of routes) {
      hono.on(route.method, `${api}${route.path}`, (context) => this.#run(route, context));
    }
    hono.get(`${api}/session`, async (context) => json(sessionOf(await this.#admit(context))));
    hono.post(`${api}/login`, (context) => this.#logIn(context));
    hono.post(`${api}/logout`, (context) => this.#logOut(context));
    hono.get(`${api}/events`, async (context) => {
      await this.#admit(context);
      return this.#events.open(context.req.raw.signal);
    });
    hono.get(`${api}/openapi.json`, async (context) => {
      await this.#admit(context);
      return json(openApiDocument(routes, basePath));
    });
    this.#refuseOtherMethods(hono, api);
    hono.get(`${basePath}/login`, (context) => this.#logInOnce(context));
    hono.all(`${api}/*`, (context) => this.#unknown(context));
    // Before the page, whose pattern takes this one in: the addresses in it are relative.
    if (basePath !== '') hono.get(basePath, () => redirect(`${basePath}/`));
    hono.get(`${basePath}/*`, (context) => this.#asset(context));
    return hono;
  }

  #refuseOtherMethods(hono: Hono<{ Bindings: Bindings }>, api: string): void {
    const methods = new Map<string, string[]>([
      ['/session', ['GET']],
      ['/login', ['POST']],
      ['/logout', ['POST']],
      ['/events', ['GET']],
      ['/openapi.json', ['GET']],
    ]);
    for (const { path, method } of this.#parts.routes)
      methods.set(path, [...(methods.get(path) ?? []), method]);
    for (const [path, allowed] of methods) {
      const allow = [...allowed, ...(allowed.includes('GET') ? ['HEAD'] : [])].join(', ');
      hono.all(`${api}${path}`, () =>
        problemResponse(new AdminProblem('METHOD_NOT_ALLOWED', undefined, { allow })),
      );
    }
  }

  async #run(route: Route, context: RequestContext): Promise<Response> {
    const caller = await this.#admit(context);
    requireRole(caller, route.role);
    const input = await readInput(route, context.req.raw, context.req.param() as Record<string, string>);
    const actor = `api:${caller.actor}`;
    const answer = await route.run(this.#routeContext(actor), input);
    if (route.method !== 'GET') this.#overviews.forget();
    return json(answer);
  }

  #routeContext(actor: string): RouteContext {
    return {
      operator: this.#parts.operator.as(actor),
      actor,
      cron: this.#parts.options.cron,
      overviews: this.#overviews,
      operations: this.#operations,
    };
  }

  #admit(context: RequestContext): Promise<Admitted> {
    return this.#parts.auth.admit(context.req.raw, this.#address(context));
  }

  #address(context: RequestContext): string {
    const { clientAddress } = this.#parts.options;
    const address =
      clientAddress === undefined
        ? context.env.incoming?.socket?.remoteAddress
        : clientAddress(context.req.raw);
    return address ?? 'unknown';
  }

  async #logIn(context: RequestContext): Promise<Response> {
    refuseCrossSite(context.req.raw);
    const { token } = parsed(loginBody, await readJson(context.req.raw), 'body');
    const { secret, caller } = this.#parts.auth.logIn(token, this.#address(context));
    return this.#withCookie(json(sessionOf({ ...caller, by: 'session' })), secret, context);
  }

  async #logOut(context: RequestContext): Promise<Response> {
    refuseCrossSite(context.req.raw);
    const secret = sessionSecret(context.req.raw);
    if (secret !== undefined) this.#parts.auth.sessions.end(secret);
    return this.#withCookie(new Response(null, { status: 204 }), '', context);
  }

  #logInOnce(context: RequestContext): Response {
    const once = new URL(context.req.raw.url).searchParams.get('once');
    const home = redirect(`${this.#parts.basePath}/`);
    // What only looks whether the address exists must not use it up.
    if (once === null || context.req.raw.method === 'HEAD') return home;
    const { secret } = this.#parts.auth.logInOnce(once, this.#address(context));
    return this.#withCookie(home, secret, context);
  }

  #withCookie(answer: Response, secret: string, context: RequestContext): Response {
    answer.headers.append('set-cookie', sessionCookie(secret, context.req.raw, `${this.#parts.basePath}/`));
    return answer;
  }

  /** Not before whoever asks is known: which routes there are is nobody else's business. */
  async #unknown(context: RequestContext): Promise<Response> {
    await this.#admit(context);
    throw new AdminProblem('NOT_FOUND', 'there is no such route');
  }

  async #asset(context: RequestContext): Promise<Response> {
    const path = new URL(context.req.raw.url).pathname.slice(this.#parts.basePath.length);
    const asset = await this.#parts.options.assets?.(path);
    if (asset === undefined) throw new AdminProblem('NOT_FOUND', 'there is no such page');
    return new Response(asset.body, { headers: { 'content-type': asset.contentType } });
  }

  #refused(error: unknown): Response {
    const problem = problemOf(error);
    if (problem.code === 'INTERNAL' || problem.code === 'DATABASE_UNAVAILABLE') {
      const { name, message, stack } = toError(error);
      this.#parts.options.logger?.error(
        { event: 'admin_failed', code: problem.code, error: `${name}: ${message}`, stack },
        'a request of the admin API failed',
      );
    }
    return problemResponse(problem);
  }
}

const SECURITY_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
};

function json(value: unknown): Response {
  return new Response(JSON.stringify(value), { headers: { 'content-type': 'application/json' } });
}

function redirect(location: string): Response {
  return new Response(null, { status: 303, headers: { location } });
}

function sessionOf({ actor, role, by }: Admitted): Wire<'Session'> {
  return { actor, role, isSession: by === 'session' };
}

function checkBasePath(basePath: string): string {
  if (basePath === '' || /^(\/[\w.~-]+)+$/.test(basePath)) return basePath;
  throw new TaskqError(
    'CONFIG_INVALID',
    "admin: basePath: expected a path such as '/taskq', without '/' at its end",
  );
}
