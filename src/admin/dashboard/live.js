// One stream of server-sent events for the whole page: a snapshot of the queue every other second. The last ten
// minutes of snapshots are kept, so that a chart has its line whichever page was shown meanwhile.

import { api } from './api.js';

/** @import { Wire } from '../contracts.ts' */

/** @typedef {Wire<'Overview'>} Overview */
/** @typedef {'connecting' | 'open' | 'lost' | 'hidden'} LiveState */

/** What the charts show. */
export const HISTORY_MS = 10 * 60_000;

export class Live {
  /** Oldest first. @type {Overview[]} */
  history = [];
  /** @type {LiveState} */
  state = 'connecting';
  /** Why the newest reading failed, in the server. @type {string | undefined} */
  trouble;
  /** @type {EventSource | undefined} */
  #source;
  /** @type {() => void} */
  #changed;

  /** @param {() => void} changed called after every snapshot and every change of the connection */
  constructor(changed) {
    this.#changed = changed;
    // A tab in the background reads nothing.
    document.addEventListener('visibilitychange', () => {
      if (this.state === 'hidden' && !document.hidden) this.open();
      else if (this.#source !== undefined && document.hidden) this.close('hidden');
    });
  }

  /** @returns {Overview | undefined} */
  get latest() {
    return this.history.at(-1);
  }

  open() {
    this.close('connecting');
    const source = new EventSource(api.eventsUrl);
    this.#source = source;
    source.addEventListener('overview', ({ data }) => this.#take(JSON.parse(data)));
    source.addEventListener('problem', ({ data }) => this.#set('open', troubleWords(JSON.parse(data).code)));
    source.addEventListener('operation', ({ data }) => {
      dispatchEvent(new CustomEvent('taskq:operation', { detail: JSON.parse(data) }));
    });
    source.addEventListener('open', () => this.#set('open', this.trouble));
    source.addEventListener('error', () => {
      this.#set('lost', this.trouble);
      // The browser tries again by itself, except after an answer that is no stream.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.#again(source), REOPEN_MS);
    });
  }

  /** @param {LiveState} state */
  close(state) {
    this.#source?.close();
    this.#source = undefined;
    this.#set(state, undefined);
  }

  /** @param {EventSource} source */
  #again(source) {
    if (this.#source === source) this.open();
  }

  /** @param {Overview} overview */
  #take(overview) {
    const oldest = Date.parse(overview.at) - HISTORY_MS;
    this.history = [
      ...this.history.filter(({ at }) => Date.parse(at) >= oldest && at < overview.at),
      overview,
    ];
    this.#set('open', undefined);
  }

  /** @param {LiveState} state @param {string | undefined} trouble */
  #set(state, trouble) {
    this.state = state;
    this.trouble = trouble;
    this.#changed();
  }
}

const REOPEN_MS = 3_000;

/** @param {string} code */
function troubleWords(code) {
  if (code === 'DATABASE_UNAVAILABLE') return 'The database does not answer.';
  return 'The server could not read the queue.';
}
