import { type ErrorCode, TaskqError } from '../domain/errors.ts';

/** Every code of a refusal, with its status and the sentence that stands when no better one is at hand. */
export const PROBLEMS = {
  REQUEST_INVALID: { status: 400, title: 'the request does not fit the contract' },
  UNAUTHENTICATED: { status: 401, title: 'log in, or give a token' },
  FORBIDDEN: { status: 403, title: 'this role may read, not act' },
  CROSS_SITE: { status: 403, title: 'the request comes from another site' },
  NOT_FOUND: { status: 404, title: 'there is no such thing' },
  METHOD_NOT_ALLOWED: { status: 405, title: 'not by this method' },
  NOT_DEAD: { status: 409, title: 'the task is no dead letter of this queue (any more)' },
  KEY_TAKEN: { status: 409, title: 'a live task has the unique key of this one' },
  NOT_RUNNING: { status: 409, title: 'the operation has ended' },
  NO_CRON_LIST: { status: 409, title: 'this process was given no list of cron entries' },
  BODY_TOO_LARGE: { status: 413, title: 'the body is too large' },
  MEDIA_TYPE: { status: 415, title: 'the body must be application/json' },
  RATE_LIMITED: { status: 429, title: 'too many failed logins' },
  INTERNAL: { status: 500, title: 'something failed that should not' },
  BUSY: { status: 503, title: 'too much of this at once' },
  DATABASE_UNAVAILABLE: { status: 503, title: 'the database did not answer' },
} as const;

export type ProblemCode = keyof typeof PROBLEMS;

/**
 * Thrown by whoever answers a request, to answer it with a problem. `detail` is shown to the client: never put what
 * the client sent, or what the database said, into it.
 */
export class AdminProblem extends Error {
  readonly code: ProblemCode;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ProblemCode, detail?: string, headers: Readonly<Record<string, string>> = {}) {
    super(detail ?? PROBLEMS[code].title);
    this.name = 'AdminProblem';
    this.code = code;
    this.headers = headers;
  }
}

/** Errors that the caller caused, in words of ours that quote nothing but names it gave. */
const CALLERS_ERRORS: ReadonlySet<ErrorCode> = new Set([
  'OPTION_INVALID',
  'DURATION_INVALID',
  'PAYLOAD_INVALID',
  'PAYLOAD_TOO_LARGE',
  'PAYLOAD_UNSTORABLE',
  'TASK_EXISTS',
]);

/** What an error is to the client. What is not its fault is told by a code alone: messages may hold anything. */
export function problemOf(error: unknown): AdminProblem {
  if (error instanceof AdminProblem) return error;
  if (error instanceof TaskqError && CALLERS_ERRORS.has(error.code)) {
    return new AdminProblem('REQUEST_INVALID', error.message);
  }
  return new AdminProblem(isOfDatabase(error) ? 'DATABASE_UNAVAILABLE' : 'INTERNAL');
}

/** A SQLSTATE, or what Node says of a connection; pg itself gives no code to its own time-outs. */
function isOfDatabase(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = 'code' in error ? String(error.code) : '';
  const isConnection = /^(ECONN|ENOTFOUND|EAI_|EPIPE|ETIMEDOUT|ENOENT|EHOSTUNREACH)/.test(code);
  const isState = /^(08|53|57|25006|40)/.test(code);
  return isConnection || isState || /timeout|terminated|not queryable/i.test(error.message);
}

export function problemResponse(problem: AdminProblem): Response {
  const { status, title } = PROBLEMS[problem.code];
  const body = { type: 'about:blank', title, status, code: problem.code, detail: problem.message };
  return new Response(JSON.stringify(body), {
    status,
    headers: { 'content-type': 'application/problem+json', ...problem.headers },
  });
}
