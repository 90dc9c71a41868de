// The one place that talks to the server. Addresses are made from where this file was loaded from, so that the page
// works under whatever path it is mounted.

/** @import { Wire } from '../contracts.ts' */

const API = new URL('../api/v1/admin/async', import.meta.url).pathname;

/** A refusal, in the words of the server (RFC 9457), or that there was no answer (status 0). */
export class ApiProblem extends Error {
  /** @param {{ status: number, code: string, title: string, detail: string, retryAfter: number | undefined }} answer */
  constructor({ status, code, title, detail, retryAfter }) {
    super(detail);
    this.status = status;
    this.code = code;
    this.title = title;
    this.detail = detail;
    /** Seconds, when the server names them. */
    this.retryAfter = retryAfter;
  }
}

/**
 * A name as one segment of a path. No URL can carry a segment that is `.` or `..`, encoded or not, so they go as `~.`
 * and `~..`.
 * @param {string} name
 */
export function segment(name) {
  return /^~*\.{1,2}$/.test(name) ? `~${name}` : encodeURIComponent(name);
}

/** @param {Record<string, string | number | undefined>} values */
function queryOf(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== '') query.set(name, String(value));
  }
  return query.size === 0 ? '' : `?${query}`;
}

/**
 * @param {string} method @param {string} path @param {{ body?: unknown, signal?: AbortSignal | undefined }} [options]
 * @returns {Promise<any>}
 */
async function call(method, path, { body, signal } = {}) {
  const headers = /** @type {Record<string, string>} */ ({ accept: 'application/json' });
  // Also without a body: a form of another site cannot send this type, so that the server may insist on it.
  if (method !== 'GET') headers['content-type'] = 'application/json';
  let response;
  try {
    response = await fetch(API + path, {
      method,
      headers,
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
      signal: signal ?? null,
      body: method === 'GET' ? null : JSON.stringify(body ?? {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiProblem({
      status: 0,
      code: 'UNREACHABLE',
      title: 'No answer',
      detail: 'It may be restarting, or the network is down.',
      retryAfter: undefined,
    });
  }
  if (response.status === 204) return undefined;
  const answer = await response.json().catch(() => undefined);
  if (response.ok && answer !== undefined) return answer;
  // The page then asks for a login, whichever part of it was refused. A wrong token at the login is no such case.
  if (response.status === 401 && path !== '/login') dispatchEvent(new Event('taskq:unauthenticated'));
  throw problemOf(response, answer);
}

/** The server's words as a sentence; our own where it has nothing to add to the title. @param {Partial<Wire<'Problem'>> | undefined} answer */
function sentence(answer) {
  if (answer?.code === 'DATABASE_UNAVAILABLE')
    return 'It may be restarting. The page goes on when it is back.';
  const detail = answer?.detail ?? 'the server answered with something that is not of this API';
  return `${detail.charAt(0).toUpperCase()}${detail.slice(1)}${/[.!?)]$/.test(detail) ? '' : '.'}`;
}

/** @param {Response} response @param {Partial<Wire<'Problem'>> | undefined} answer */
function problemOf(response, answer) {
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  return new ApiProblem({
    status: response.status,
    code: answer?.code ?? 'UNKNOWN',
    title: answer?.title ?? `Status ${response.status}`,
    detail: sentence(answer),
    retryAfter: Number.isFinite(seconds) ? seconds : undefined,
  });
}

/** @param {string} path @param {AbortSignal} [signal] */
const get = (path, signal) => call('GET', path, { signal });
/** @param {string} path @param {unknown} [body] */
const post = (path, body) => call('POST', path, { body });

/** @typedef {{ type?: string, queue?: string, error?: string, olderThan?: string, newerThan?: string }} DeadFilter */
/** @typedef {{ [name: string]: string | number | undefined }} Query */

export const api = {
  eventsUrl: `${API}/events`,
  /** @returns {Promise<Wire<'Session'>>} */
  session: () => get('/session'),
  /** @param {string} token @returns {Promise<Wire<'Session'>>} */
  logIn: (token) => post('/login', { token }),
  logOut: () => post('/logout'),
  /** @param {AbortSignal} [signal] @returns {Promise<Wire<'Overview'>>} */
  overview: (signal) => get('/overview', signal),
  /** @param {AbortSignal} [signal] @returns {Promise<Wire<'QueueList'>>} */
  queues: (signal) => get('/queues', signal),
  /** @param {string} queue @param {AbortSignal} [signal] @returns {Promise<Wire<'QueueDetail'>>} */
  queue: (queue, signal) => get(`/queues/${segment(queue)}`, signal),
  /** @param {string} queue @returns {Promise<Wire<'PauseAnswer'>>} */
  pause: (queue) => post(`/queues/${segment(queue)}/pause`),
  /** @param {string} queue @returns {Promise<Wire<'PauseAnswer'>>} */
  resume: (queue) => post(`/queues/${segment(queue)}/resume`),
  /** @param {string} queue @param {number | null} weight @returns {Promise<Wire<'WeightAnswer'>>} */
  weigh: (queue, weight) => call('PUT', `/queues/${segment(queue)}/weight`, { body: { weight } }),
  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Wire<'TaskPage'>>} */
  tasks: (query, signal) => get(`/tasks${queryOf(query)}`, signal),
  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Wire<'CompletedPage'>>} */
  completed: (query, signal) => get(`/completed${queryOf(query)}`, signal),
  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<Wire<'TaskDetail'>>} */
  task: (id, signal) => get(`/tasks/${segment(id)}`, signal),
  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Wire<'DeadPage'>>} */
  dead: (query, signal) => get(`/dead${queryOf(query)}`, signal),
  /** @param {string} queue @param {string} id @returns {Promise<Wire<'Done'>>} */
  replay: (queue, id) => post(`/queues/${segment(queue)}/archived/${segment(id)}/run`),
  /** @param {string} queue @param {string} id @returns {Promise<Wire<'Done'>>} */
  drop: (queue, id) => call('DELETE', `/queues/${segment(queue)}/archived/${segment(id)}`),
  /**
   * @param {'replay' | 'drop'} kind @param {{ filter: DeadFilter, dryRun: boolean }} request
   * @returns {Promise<Wire<'Operation'>>}
   */
  bulk: (kind, request) => post(`/dead/${kind}`, request),
  /** @param {string} id @param {AbortSignal} [signal] @returns {Promise<Wire<'Operation'>>} */
  operation: (id, signal) => get(`/operations/${segment(id)}`, signal),
  /** @param {string} id @returns {Promise<Wire<'Operation'>>} */
  cancelOperation: (id) => post(`/operations/${segment(id)}/cancel`),
  /** @param {AbortSignal} [signal] @returns {Promise<Wire<'CronList'>>} */
  cron: (signal) => get('/cron', signal),
  /** @param {string} entry @returns {Promise<Wire<'Enqueued'>>} */
  runCron: (entry) => post(`/cron/${segment(entry)}/run`),
  /** @param {AbortSignal} [signal] @returns {Promise<Wire<'ReplicaList'>>} */
  replicas: (signal) => get('/replicas', signal),
  /** @param {Query} query @param {AbortSignal} [signal] @returns {Promise<Wire<'AuditPage'>>} */
  audit: (query, signal) => get(`/audit${queryOf(query)}`, signal),
};
