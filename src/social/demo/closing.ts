/** What must be closed at the end, in the reverse order of its start. */
export class Closing {
  readonly #closers: (() => unknown)[] = [];

  defer(close: () => unknown): void {
    this.#closers.push(close);
  }

  /** One that does not close does not keep the others open; what it threw is thrown behind the last. */
  async closeAll(): Promise<void> {
    const failures: unknown[] = [];
    for (const close of this.#closers.splice(0).reverse()) {
      try {
        await close();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}
