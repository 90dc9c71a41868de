import { createHash, timingSafeEqual } from 'node:crypto';
import { TaskqError } from '../domain/errors.ts';
import { ADMIN_TOKEN_LENGTH_MIN } from '../domain/limits.ts';
import type { AppClock } from '../domain/time.ts';
import { LoginLimit } from './login-limit.ts';
import { AdminProblem } from './problems.ts';
import { type AdminRole, type Caller, Sessions } from './sessions.ts';

// Who may do what. A request proves itself by a bearer token, by the cookie of a session, or by what the application's
// own `authorize` makes of it. The last two are what a browser sends by itself, so with them a request that another
// site has caused is refused.

export const SESSION_COOKIE = 'taskq_session';

export interface AuthOptions {
  /** May act. */
  readonly token?: string | undefined;
  /** May read. */
  readonly readToken?: string | undefined;
  /** The application's own sign-on; undefined: not known to it. */
  readonly authorize?: ((request: Request) => Promise<Caller | undefined> | Caller | undefined) | undefined;
  readonly clock: AppClock;
}

/** A caller, and how it was told. */
export interface Admitted extends Caller {
  readonly by: 'token' | 'session' | 'authorize';
}

export class Auth {
  readonly #tokens: readonly { readonly hash: Buffer; readonly caller: Caller }[];
  readonly #authorize: AuthOptions['authorize'];
  readonly #limit: LoginLimit;
  readonly sessions: Sessions;

  /** @throws TaskqError `CONFIG_INVALID` when nothing could ever be admitted, or a token is too short */
  constructor({ token, readToken, authorize, clock }: AuthOptions) {
    if (token === undefined && readToken === undefined && authorize === undefined) {
      throw invalid(
        'give a token of its own, a token for reading, or authorize: without any nobody could log in',
      );
    }
    if (token !== undefined && token === readToken) throw invalid('token and readToken must differ');
    this.#tokens = [
      ...(token === undefined ? [] : [knownToken(token, { actor: 'token', role: 'act' })]),
      ...(readToken === undefined ? [] : [knownToken(readToken, { actor: 'read-token', role: 'read' })]),
    ];
    this.#authorize = authorize;
    this.#limit = new LoginLimit(clock);
    this.sessions = new Sessions(clock);
  }

  /** @throws AdminProblem `UNAUTHENTICATED`, `CROSS_SITE`, `RATE_LIMITED` */
  async admit(request: Request, address: string): Promise<Admitted> {
    const bearer = /^Bearer +(.+)$/i.exec(request.headers.get('authorization') ?? '')?.[1]?.trim();
    if (bearer !== undefined && this.#tokens.length > 0) {
      const caller = this.#tokenCaller(bearer, address);
      if (caller !== undefined) return { ...caller, by: 'token' };
      if (this.#authorize === undefined) throw unauthenticated();
    }
    const secret = sessionSecret(request);
    const session = secret === undefined ? undefined : this.sessions.find(secret);
    if (session !== undefined) {
      refuseCrossSite(request);
      return { ...session, by: 'session' };
    }
    const own = await this.#authorize?.(request);
    if (own === undefined) throw unauthenticated();
    refuseCrossSite(request);
    return { ...checkCaller(own), by: 'authorize' };
  }

  /** The secret of a new session for whoever has the token. @throws AdminProblem as `admit` */
  logIn(token: string, address: string): { readonly secret: string; readonly caller: Caller } {
    const caller = this.#tokenCaller(token, address);
    if (caller === undefined) throw new AdminProblem('UNAUTHENTICATED', 'this is not the token');
    return { secret: this.sessions.begin(caller), caller };
  }

  /** The same for whoever has a one-time token. */
  logInOnce(once: string, address: string): { readonly secret: string; readonly caller: Caller } {
    this.#refuseTooMany(address);
    const caller = this.sessions.takeOnce(once);
    if (caller === undefined) {
      this.#limit.failed(address);
      throw new AdminProblem('UNAUTHENTICATED', 'this link was used already, or is too old');
    }
    return { secret: this.sessions.begin(caller), caller };
  }

  #tokenCaller(token: string, address: string): Caller | undefined {
    this.#refuseTooMany(address);
    const hash = hashOf(token);
    let found: Caller | undefined;
    // All of them, whichever fits: the time says neither how much of a token was right nor which.
    for (const known of this.#tokens) if (timingSafeEqual(known.hash, hash)) found = known.caller;
    if (found === undefined) this.#limit.failed(address);
    return found;
  }

  #refuseTooMany(address: string): void {
    const seconds = this.#limit.retryAfterSeconds(address);
    if (seconds > 0) throw new AdminProblem('RATE_LIMITED', undefined, { 'retry-after': String(seconds) });
  }
}

/** @throws AdminProblem `FORBIDDEN` */
export function requireRole({ role }: Caller, needed: AdminRole): void {
  if (needed === 'act' && role !== 'act') throw new AdminProblem('FORBIDDEN');
}

/**
 * Browsers say where a request comes from: by Sec-Fetch-Site, else by Origin, and a page cannot change either. One that
 * changes something and says neither, but has a cookie, may be an old browser's.
 * @throws AdminProblem `CROSS_SITE`
 */
export function refuseCrossSite(request: Request): void {
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  const site = request.headers.get('sec-fetch-site');
  if (site !== null) {
    // 'none': typed into the address bar. Nothing that changes anything is.
    if (site === 'same-origin' || (site === 'none' && isRead)) return;
    throw new AdminProblem('CROSS_SITE');
  }
  const origin = request.headers.get('origin');
  if (origin !== null) {
    if (isOwnOrigin(origin, request)) return;
    throw new AdminProblem('CROSS_SITE');
  }
  if (!isRead && request.headers.has('cookie')) throw new AdminProblem('CROSS_SITE');
}

// The scheme is not compared: a proxy that ends TLS hands on http. A look-alike has another host.
function isOwnOrigin(origin: string, request: Request): boolean {
  const host = request.headers.get('host') ?? new URL(request.url).host;
  return URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
}

export function sessionSecret(request: Request): string | undefined {
  const cookies = (request.headers.get('cookie') ?? '').split(';');
  const own = cookies
    .map((cookie) => cookie.trim())
    .find((cookie) => cookie.startsWith(`${SESSION_COOKIE}=`));
  return own?.slice(SESSION_COOKIE.length + 1);
}

/** `Secure` where the browser speaks https, also to a proxy in front. */
export function sessionCookie(secret: string, request: Request, path: string): string {
  const isSecure =
    new URL(request.url).protocol === 'https:' ||
    request.headers.get('x-forwarded-proto')?.split(',')[0]?.trim() === 'https';
  const ended = secret === '' ? '; Max-Age=0' : '';
  return `${SESSION_COOKIE}=${secret}; Path=${path}; HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}${ended}`;
}

function knownToken(token: string, caller: Caller): { hash: Buffer; caller: Caller } {
  if (typeof token !== 'string' || token.length < ADMIN_TOKEN_LENGTH_MIN) {
    throw invalid(`a token must have ${ADMIN_TOKEN_LENGTH_MIN} characters at the least`);
  }
  return { hash: hashOf(token), caller };
}

/** What the application's own code answers is checked: 'admin' for a role must not become a right by accident. */
function checkCaller(caller: Caller): Caller {
  const { actor, role } = caller;
  if (typeof actor === 'string' && actor !== '' && (role === 'read' || role === 'act'))
    return { actor, role };
  throw new TaskqError('CONFIG_INVALID', "authorize: expected { actor, role: 'read' | 'act' } or undefined");
}

const hashOf = (token: string): Buffer => createHash('sha256').update(token).digest();

function unauthenticated(): AdminProblem {
  return new AdminProblem('UNAUTHENTICATED', undefined, { 'www-authenticate': 'Bearer realm="taskq"' });
}

function invalid(problem: string): TaskqError {
  return new TaskqError('CONFIG_INVALID', `admin: ${problem}`);
}
