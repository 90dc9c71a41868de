import { createHash, randomBytes } from 'node:crypto';
import {
  ADMIN_ONCE_MS,
  ADMIN_SESSION_IDLE_MS,
  ADMIN_SESSION_MS,
  ADMIN_SESSIONS_MAX,
} from '../domain/limits.ts';
import type { AppClock } from '../domain/time.ts';

/** Who asks, and what they may. */
export interface Caller {
  /** As the audit names them, without its prefix. */
  readonly actor: string;
  readonly role: AdminRole;
}

/** `read` looks; `act` also replays, drops, pauses and weighs. */
export type AdminRole = 'read' | 'act';

interface Session {
  readonly caller: Caller;
  readonly endsAt: number;
  idleAt: number;
}

const SECRET_BYTES = 32;

// By the hash: whoever reads this memory, or the timing of its look-ups, has no cookie that works.
const keyOf = (secret: string): string => createHash('sha256').update(secret).digest('base64');

/** Logins of the dashboard, in memory: a restart of the process ends them. */
export class Sessions {
  readonly #clock: AppClock;
  readonly #sessions = new Map<string, Session>();
  readonly #once = new Map<string, { readonly caller: Caller; readonly endsAt: number }>();

  constructor(clock: AppClock) {
    this.#clock = clock;
  }

  /** Answers the secret of a new session, for its cookie. */
  begin(caller: Caller): string {
    const now = this.#clock.monotonic();
    for (const [key, session] of this.#sessions) if (isOver(session, now)) this.#sessions.delete(key);
    if (this.#sessions.size >= ADMIN_SESSIONS_MAX) {
      const [oldest] = this.#sessions.keys();
      if (oldest !== undefined) this.#sessions.delete(oldest);
    }
    const secret = randomBytes(SECRET_BYTES).toString('base64url');
    this.#sessions.set(keyOf(secret), {
      caller,
      endsAt: now + ADMIN_SESSION_MS,
      idleAt: now + ADMIN_SESSION_IDLE_MS,
    });
    return secret;
  }

  /** Whose session it is; undefined when there is none (any more). */
  find(secret: string): Caller | undefined {
    const key = keyOf(secret);
    const session = this.#sessions.get(key);
    if (session === undefined) return undefined;
    const now = this.#clock.monotonic();
    if (isOver(session, now)) {
      this.#sessions.delete(key);
      return undefined;
    }
    session.idleAt = now + ADMIN_SESSION_IDLE_MS;
    return session.caller;
  }

  end(secret: string): void {
    this.#sessions.delete(keyOf(secret));
  }

  /** A token that logs in once, within a quarter of an hour. */
  makeOnce(caller: Caller): string {
    const secret = randomBytes(SECRET_BYTES).toString('base64url');
    this.#once.set(keyOf(secret), { caller, endsAt: this.#clock.monotonic() + ADMIN_ONCE_MS });
    return secret;
  }

  takeOnce(secret: string): Caller | undefined {
    const key = keyOf(secret);
    const once = this.#once.get(key);
    this.#once.delete(key);
    return once !== undefined && once.endsAt > this.#clock.monotonic() ? once.caller : undefined;
  }
}

function isOver({ endsAt, idleAt }: Session, now: number): boolean {
  return endsAt <= now || idleAt <= now;
}
