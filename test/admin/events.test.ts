import { API_PATH } from '../../src/admin/contracts.ts';
import { ADMIN_EVENTS_INTERVAL_MS, ADMIN_STREAM_MS, ADMIN_STREAMS_MAX } from '../../src/domain/limits.ts';
import { expect, ORIGIN, type TestAdmin, TOKEN, test } from '../support/admin.ts';
import { ManualClock } from '../support/clock.ts';
import { insertDead } from '../support/dead.ts';
import { insertRow } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { waitFor } from '../support/wait.ts';

interface Event {
  readonly event: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it waits for.
  readonly data: any;
}

/** A client of the stream, as EventSource reads it. */
class Listener {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #decoder = new TextDecoder();
  readonly #stop: () => void;
  #text = '';

  constructor(answer: Response, stop: () => void) {
    this.#reader = (answer.body as ReadableStream<Uint8Array>).getReader();
    this.#stop = stop;
  }

  /** Undefined at the end of the stream. */
  async next(): Promise<Event | undefined> {
    for (;;) {
      const end = this.#text.indexOf('\n\n');
      if (end >= 0) {
        const block = this.#text.slice(0, end);
        this.#text = this.#text.slice(end + 2);
        const [, event] = /^event: (.*)$/m.exec(block) ?? [];
        const [, data] = /^data: (.*)$/m.exec(block) ?? [];
        if (event !== undefined && data !== undefined) return { event, data: JSON.parse(data) };
        continue;
      }
      const { value, done } = await this.#reader.read();
      if (done) return undefined;
      this.#text += this.#decoder.decode(value, { stream: true });
    }
  }

  async leave(): Promise<void> {
    this.#stop();
    await this.#reader.cancel().catch(() => undefined);
  }
}

async function listen(admin: TestAdmin): Promise<Listener> {
  const aborting = new AbortController();
  const answer = await admin.fetch(
    new Request(`${ORIGIN}${API_PATH}/events`, {
      headers: { authorization: `Bearer ${TOKEN}` },
      signal: aborting.signal,
    }),
  );
  expect([answer.status, answer.headers.get('content-type')]).toEqual([
    200,
    'text/event-stream; charset=utf-8',
  ]);
  return new Listener(answer, () => aborting.abort());
}

const isReading = (text: string) => text.startsWith('with recursive "live_queue"');

test('however many listen, the database is read once in an interval', async ({ db, openAdmin }) => {
  const clock = new ManualClock();
  const admin = await openAdmin({ clock, timers: clock });
  await insertRow(db);
  const sent = recordStatements();
  const readings = () => sent.all.filter(({ text }) => isReading(text)).length;
  const listeners = await Promise.all(Array.from({ length: 5 }, () => listen(admin)));
  for (const listener of listeners) {
    expect(await listener.next()).toMatchObject({
      event: 'overview',
      data: { totals: { due: { count: 1 } } },
    });
  }
  expect(readings()).toBe(1);
  await insertRow(db);
  clock.advance(ADMIN_EVENTS_INTERVAL_MS);
  for (const listener of listeners) {
    expect(await listener.next()).toMatchObject({
      event: 'overview',
      data: { totals: { due: { count: 2 } } },
    });
  }
  expect(readings()).toBe(2);
});

test('when nobody listens any more, nothing is read', async ({ openAdmin }) => {
  const clock = new ManualClock();
  const admin = await openAdmin({ clock, timers: clock });
  const listeners = [await listen(admin), await listen(admin)];
  for (const listener of listeners) await listener.next();
  for (const listener of listeners) await listener.leave();
  expect(clock.pendingCount).toBe(0);
  const sent = recordStatements();
  clock.advance(10 * ADMIN_EVENTS_INTERVAL_MS);
  expect(sent.all).toEqual([]);
});

test('a stream ends after its time, so that whoever listens is admitted anew', async ({ openAdmin }) => {
  const clock = new ManualClock();
  const admin = await openAdmin({ clock, timers: clock });
  const listener = await listen(admin);
  await listener.next();
  clock.advance(ADMIN_STREAM_MS);
  let last = await listener.next();
  while (last !== undefined) last = await listener.next();
  expect(last).toBeUndefined();
  await waitFor(() => clock.pendingCount === 0);
});

test('a listener hears of a bulk operation as it goes on', async ({ db, openAdmin }) => {
  const admin = await openAdmin();
  await insertDead(db, 3);
  const listener = await listen(admin);
  await admin.call('POST /dead/replay', { body: { filter: {} } });
  for (;;) {
    const event = await listener.next();
    if (event?.event !== 'operation' || event.data.state === 'running') continue;
    expect(event.data).toMatchObject({ state: 'done', counts: { written: 3 } });
    break;
  }
  await listener.leave();
});

test('streams beyond their number are refused', async ({ openAdmin }) => {
  const clock = new ManualClock();
  const admin = await openAdmin({ clock, timers: clock });
  const listeners = [];
  for (let place = 0; place < ADMIN_STREAMS_MAX; place += 1) listeners.push(await listen(admin));
  expect((await admin.call('GET /events')).body).toMatchObject({ status: 503, code: 'BUSY' });
  await listeners[0]?.leave();
  await listen(admin);
});

test('a client that does not read is sent away', async ({ openAdmin }) => {
  const clock = new ManualClock();
  const admin = await openAdmin({ clock, timers: clock });
  await listen(admin);
  // Two timers stand: of the stream, and of the next reading.
  await waitFor(() => clock.pendingCount === 2);
  await waitFor(() => {
    clock.advance(ADMIN_EVENTS_INTERVAL_MS);
    return clock.pendingCount === 0;
  });
});

test('over a connection, a listener that goes away is forgotten', async ({ openAdmin }) => {
  const clock = new ManualClock();
  const admin = await openAdmin({ clock, timers: clock });
  const { url } = await admin.listen({ port: 0 });
  const aborting = new AbortController();
  const answer = await fetch(`${url}${API_PATH.slice(1)}/events`, {
    headers: { authorization: `Bearer ${TOKEN}` },
    signal: aborting.signal,
  });
  const listener = new Listener(answer, () => aborting.abort());
  expect(await listener.next()).toMatchObject({ event: 'overview' });
  await listener.leave();
  await waitFor(() => clock.pendingCount === 0);
});
