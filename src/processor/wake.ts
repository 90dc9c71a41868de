interface Waiter {
  readonly stopping: AbortSignal;
  release(bySignal: boolean): void;
}

/**
 * Where idle slots wait. One signal releases one slot, the one that has waited longest; a slot that claims a row
 * signals again, so that a burst cascades and a single task does not make every slot query.
 */
export class WakeChannel {
  /** In the order of their arrival. */
  readonly #waiters = new Set<Waiter>();
  /** One listener for each signal, however many slots wait under it: Node warns of a leak from the eleventh on. */
  readonly #abortListeners = new Map<AbortSignal, () => void>();
  #remembered = false;

  /** Slots waiting now. */
  get idle(): number {
    return this.#waiters.size;
  }

  /**
   * Releases one idle slot. With none idle the signal is remembered, once: whoever waits next looks again at once,
   * which is what closes the gap between an empty discovery and the wait. It is not counted, since one look finds
   * whatever ten signals announced.
   */
  signal(): void {
    const [longestWaiting] = this.#waiters;
    if (longestWaiting === undefined) this.#remembered = true;
    else longestWaiting.release(true);
  }

  /** Resolves at a signal, or when `stopping` aborts; never rejects. */
  async wait(stopping: AbortSignal): Promise<void> {
    if (stopping.aborted) return;
    if (this.#remembered) {
      this.#remembered = false;
      return;
    }
    const bySignal = await this.#park(stopping);
    // Released by a signal and stopped in the same turn: the slot will not look, so the signal goes to another.
    if (bySignal && stopping.aborted) this.signal();
  }

  #park(stopping: AbortSignal): Promise<boolean> {
    return new Promise((resolve) => {
      const release = (bySignal: boolean) => {
        this.#waiters.delete(waiter);
        this.#forgetUnused(stopping);
        resolve(bySignal);
      };
      const waiter: Waiter = { stopping, release };
      this.#waiters.add(waiter);
      this.#listen(stopping);
    });
  }

  #listen(stopping: AbortSignal): void {
    if (this.#abortListeners.has(stopping)) return;
    const onAbort = () => {
      for (const waiter of [...this.#waiters]) {
        if (waiter.stopping === stopping) waiter.release(false);
      }
    };
    this.#abortListeners.set(stopping, onAbort);
    stopping.addEventListener('abort', onAbort);
  }

  #forgetUnused(stopping: AbortSignal): void {
    for (const waiter of this.#waiters) if (waiter.stopping === stopping) return;
    const onAbort = this.#abortListeners.get(stopping);
    if (onAbort !== undefined) stopping.removeEventListener('abort', onAbort);
    this.#abortListeners.delete(stopping);
  }
}
