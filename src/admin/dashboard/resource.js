// Something read from the server again and again: the last good answer stays on the page while a newer one is on its
// way, and also when it fails.

import { ApiProblem } from './api.js';

/** @template Data */
export class Resource {
  /** @type {Data | undefined} */
  data;
  /** @type {ApiProblem | undefined} */
  problem;
  /** @type {(signal: AbortSignal) => Promise<Data>} */
  #read;
  /** @type {() => void} */
  #changed;
  #leaving = new AbortController();
  #isReading = false;
  #isWanted = false;

  /** @param {(signal: AbortSignal) => Promise<Data>} read @param {() => void} changed */
  constructor(read, changed) {
    this.#read = read;
    this.#changed = changed;
  }

  /** Reads now, or once more after the read that is under way, which may have begun before what is asked for. */
  async reload() {
    this.#isWanted = true;
    if (this.#isReading) return;
    this.#isReading = true;
    while (this.#isWanted && !this.#leaving.signal.aborted) {
      this.#isWanted = false;
      await this.#readOnce();
    }
    this.#isReading = false;
  }

  /** Reads unless a read is under way. */
  refresh() {
    if (!this.#isReading) void this.reload();
  }

  /** Nobody looks any more. */
  leave() {
    this.#leaving.abort();
  }

  async #readOnce() {
    const { signal } = this.#leaving;
    try {
      const data = await this.#read(signal);
      if (signal.aborted) return;
      this.data = data;
      this.problem = undefined;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiProblem)) throw error;
      this.problem = error;
    }
    this.#changed();
  }
}
