import {
  ADMIN_EVENTS_INTERVAL_MS,
  ADMIN_EVENTS_REST_FACTOR,
  ADMIN_STREAM_BACKLOG_MAX,
  ADMIN_STREAM_MS,
  ADMIN_STREAMS_MAX,
} from '../domain/limits.ts';
import type { AppClock, Timer, Timers } from '../domain/time.ts';
import type { Overviews } from './overview.ts';
import { AdminProblem, problemOf } from './problems.ts';

interface Stream {
  readonly send: (text: string) => void;
  readonly end: () => void;
  readonly limit: Timer;
}

/**
 * Server-sent events: `overview`, `operation`, `problem`. While somebody listens there is one reader, however many
 * listen; when nobody does, the database is not asked.
 */
export class LiveEvents {
  readonly #overviews: Overviews;
  readonly #clock: AppClock;
  readonly #timers: Timers;
  readonly #streams = new Set<Stream>();
  #next: Timer | undefined;
  #isReading = false;
  #newest: string | undefined;

  constructor(overviews: Overviews, clock: AppClock, timers: Timers) {
    this.#overviews = overviews;
    this.#clock = clock;
    this.#timers = timers;
  }

  /** @throws AdminProblem `BUSY` */
  open(signal: AbortSignal): Response {
    if (this.#streams.size >= ADMIN_STREAMS_MAX)
      throw new AdminProblem('BUSY', 'too many open event streams');
    const encoder = new TextEncoder();
    let ended = () => {};
    let isCancelled = false;
    const body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          const stream: Stream = {
            send: (text) => {
              // A client that does not read must not fill the memory: it is sent away, and comes again.
              if ((controller.desiredSize ?? 0) <= 0) stream.end();
              else controller.enqueue(encoder.encode(text));
            },
            end: () => {
              if (!this.#streams.delete(stream)) return;
              stream.limit.cancel();
              if (this.#streams.size === 0) this.#stopReading();
              if (!isCancelled) controller.close();
            },
            limit: this.#timers.after(ADMIN_STREAM_MS, () => stream.end(), { unref: true }),
          };
          ended = stream.end;
          this.#streams.add(stream);
          stream.send(`retry: ${ADMIN_EVENTS_INTERVAL_MS}\n\n`);
          if (this.#newest !== undefined) stream.send(this.#newest);
          this.#startReading();
        },
        cancel: () => {
          isCancelled = true;
          ended();
        },
      },
      { highWaterMark: ADMIN_STREAM_BACKLOG_MAX },
    );
    signal.addEventListener('abort', () => ended(), { once: true });
    if (signal.aborted) ended();
    return new Response(body, { headers: { 'content-type': 'text/event-stream; charset=utf-8' } });
  }

  /** Something has happened that is not a reading. */
  publish(event: string, value: unknown): void {
    this.#send(eventText(event, value));
  }

  close(): void {
    for (const stream of [...this.#streams]) stream.end();
  }

  get listeners(): number {
    return this.#streams.size;
  }

  #send(text: string): void {
    for (const stream of [...this.#streams]) stream.send(text);
  }

  #startReading(): void {
    if (this.#next !== undefined || this.#isReading) return;
    void this.#read();
  }

  #stopReading(): void {
    this.#next?.cancel();
    this.#next = undefined;
    this.#newest = undefined;
  }

  async #read(): Promise<void> {
    this.#next = undefined;
    this.#isReading = true;
    const begun = this.#clock.monotonic();
    try {
      this.#newest = eventText('overview', await this.#overviews.read());
      this.#send(this.#newest);
    } catch (error) {
      this.#send(eventText('problem', { code: problemOf(error).code }));
    }
    this.#isReading = false;
    if (this.#streams.size === 0) {
      this.#stopReading();
      return;
    }
    const tookMs = this.#clock.monotonic() - begun;
    const waitMs = Math.max(ADMIN_EVENTS_INTERVAL_MS, tookMs * ADMIN_EVENTS_REST_FACTOR);
    this.#next = this.#timers.after(waitMs, () => void this.#read(), { unref: true });
  }
}

// JSON has no line break of its own, so a text with one cannot end the event and begin another.
function eventText(event: string, value: unknown): string {
  return `event: ${event}\ndata: ${JSON.stringify(value)}\n\n`;
}
