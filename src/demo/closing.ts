/** What must be closed at the end, however the end comes; in the reverse order of its start. */
export class Closing {
  readonly #closers: (() => Promise<void>)[] = [];
  #isClosed = false;
  readonly #onError: (error: unknown) => void;

  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
  }

  /** Takes over something that was just started. What comes after the end is closed at once. */
  defer(close: () => Promise<void>): void {
    if (this.#isClosed) void this.#close(close);
    else this.#closers.push(close);
  }

  async closeAll(): Promise<void> {
    this.#isClosed = true;
    for (const close of this.#closers.splice(0).reverse()) await this.#close(close);
  }

  // One thing that does not close must not keep the others open.
  async #close(close: () => Promise<void>): Promise<void> {
    try {
      await close();
    } catch (error) {
      this.#onError(error);
    }
  }
}
