import {
  type Attributes,
  context,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import {
  InMemorySpanExporter,
  NodeTracerProvider,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-node';
import { afterAll, beforeEach, describe, expect } from 'vitest';
import {
  createEnqueuer,
  type HandlersFor,
  type QueueEvent,
  traceEnqueue,
  traceRuns,
} from '../../src/index.ts';
import { ManualClock } from '../support/clock.ts';
import { gate, test } from '../support/replica.ts';
import { allRows, makeDue, wakeReplicas } from '../support/rows.ts';
import { type TestTasks, testTasks } from '../support/tasks.ts';

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const tracer = trace.getTracer('the application');
// Made at the level of a module, as generated code makes it.
const { enqueue, enqueueMany } = createEnqueuer(testTasks);

beforeEach(() => exporter.reset());
afterAll(async () => {
  await provider.shutdown();
  trace.disable();
  context.disable();
  propagation.disable();
});

const spansNamed = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name);

function spanNamed(name: string): ReadableSpan {
  const [span, ...others] = spansNamed(name);
  if (span === undefined || others.length > 0) throw new Error(`${others.length + 1} spans '${name}'`);
  return span;
}

const idsOf = (spans: readonly ReadableSpan[]) => spans.map((span) => span.spanContext().spanId);
const linksOf = (span: ReadableSpan) => span.links.map((link) => link.context.spanId);
const isSettled = (outcome: string) => (event: QueueEvent) =>
  event.kind === 'settled' && event.outcome === outcome;

type PlainHandler = HandlersFor<TestTasks>['plain'];

test('an enqueue is a producer span, and its context travels in the headers of the row', async ({ db }) => {
  const { id } = await tracer.startActiveSpan('request', async (request) => {
    const enqueued = await enqueue(db, 'plain', {}, { queue: 'low' });
    request.end();
    return enqueued;
  });

  const [send, request] = [spanNamed('send plain'), spanNamed('request')];
  expect(send.kind).toBe(SpanKind.PRODUCER);
  expect(send.parentSpanContext?.spanId).toBe(request.spanContext().spanId);
  expect(send.attributes).toEqual({
    'messaging.system': 'taskq',
    'messaging.operation.name': 'send',
    'messaging.operation.type': 'send',
    'messaging.destination.name': 'low',
    'messaging.message.id': id,
    'messaging.taskq.task_type': 'plain',
    'messaging.taskq.status': 'enqueued',
  } satisfies Attributes);
  const { traceId, spanId } = send.spanContext();
  expect((await allRows(db)).map((row) => row['headers'])).toEqual([
    { traceparent: `00-${traceId}-${spanId}-01` },
  ]);
});

test('a list is one span with its count, and a stream one without; all of their tasks carry it', async ({
  db,
}) => {
  await enqueueMany(db, 'plain', [{}, {}, {}]);
  await db.transaction().execute((tx) => enqueueMany(tx, 'plain', new Set([{}])));

  const [list, stream] = spansNamed('send plain');
  expect(list?.attributes).toMatchObject({ 'messaging.batch.message_count': 3 });
  expect(list?.attributes).not.toHaveProperty('messaging.message.id');
  expect(stream?.attributes).not.toHaveProperty('messaging.batch.message_count');
  const carried = (await allRows(db)).map(
    (row) => (row['headers'] as Record<string, string>)['traceparent']?.split('-')[2],
  );
  const [listId, streamId] = idsOf(spansNamed('send plain'));
  expect(carried).toEqual([listId, listId, listId, streamId]);
});

test('a refused enqueue is a span with the error, whose code is its type', async ({ db }) => {
  await expect(enqueue(db, 'plain', { n: 0.5 })).rejects.toMatchObject({ code: 'PAYLOAD_INVALID' });

  const send = spanNamed('send plain');
  expect(send.status.code).toBe(SpanStatusCode.ERROR);
  expect(send.attributes).toMatchObject({ 'error.type': 'PAYLOAD_INVALID' });
  expect(send.events).toMatchObject([{ name: 'exception' }]);
});

test('a context that the caller has given itself stays, and the span is linked to it', async ({ db }) => {
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  await enqueue(db, 'plain', {}, { headers: { traceparent } });

  expect((await allRows(db)).map((row) => row['headers'])).toEqual([{ traceparent }]);
  expect(linksOf(spanNamed('send plain'))).toEqual(['b7ad6b7169203331']);
});

test('a run is a consumer span in a trace of its own, linked to the enqueue; the spans of the handler are its children', async ({
  db,
  startReplica,
}) => {
  const plain: PlainHandler = async () => {
    tracer.startSpan('work').end();
  };
  // A replica that is started within a span must not hang all its runs below that.
  const { events } = await tracer.startActiveSpan('start', async (start) => {
    const replica = await startReplica({ handlers: { plain } });
    start.end();
    return replica;
  });
  const { id } = await enqueue(db, 'plain', {});
  await events.first('settled');

  const [send, run, work] = [spanNamed('send plain'), spanNamed('process plain'), spanNamed('work')];
  expect(run.kind).toBe(SpanKind.CONSUMER);
  expect(run.parentSpanContext).toBeUndefined();
  const traceIds = [send, run, spanNamed('start')].map((span) => span.spanContext().traceId);
  expect(new Set(traceIds).size).toBe(3);
  expect(linksOf(run)).toEqual(idsOf([send]));
  expect(work.parentSpanContext?.spanId).toBe(run.spanContext().spanId);
  expect(run.status.code).toBe(SpanStatusCode.UNSET);
  expect(run.attributes).toEqual({
    'messaging.system': 'taskq',
    'messaging.operation.name': 'process',
    'messaging.operation.type': 'process',
    'messaging.destination.name': 'default',
    'messaging.message.id': id,
    'messaging.taskq.task_type': 'plain',
    'messaging.taskq.attempt': 1,
    'messaging.taskq.max_attempts': 20,
    'messaging.taskq.waited_ms': expect.any(Number),
    'messaging.taskq.outcome': 'success',
  });
});

test('retries of a task are spans that are linked to the same enqueue, a failed one with its exception', async ({
  db,
  startReplica,
}) => {
  let runs = 0;
  const plain: PlainHandler = async () => {
    runs += 1;
    if (runs === 1) throw new RangeError('no such stack');
  };
  const { events } = await startReplica({ handlers: { plain } });
  const { id } = await enqueue(db, 'plain', {});
  await events.first('settled', isSettled('failure'));
  await makeDue(db, id);
  await wakeReplicas(db);
  await events.first('settled', isSettled('success'));

  const [failed, succeeded] = spansNamed('process plain');
  const sent = idsOf(spansNamed('send plain'));
  expect([failed, succeeded].map((run) => run && linksOf(run))).toEqual([sent, sent]);
  expect([failed, succeeded].map((run) => run?.attributes['messaging.taskq.attempt'])).toEqual([1, 2]);
  expect(failed?.attributes).toMatchObject({
    'messaging.taskq.outcome': 'failure',
    'error.type': 'RangeError',
  });
  expect(failed?.status).toEqual({ code: SpanStatusCode.ERROR, message: 'no such stack' });
  expect(failed?.events).toMatchObject([
    {
      name: 'exception',
      attributes: {
        'exception.type': 'RangeError',
        'exception.message': 'no such stack',
        'exception.stacktrace': expect.stringContaining('no such stack'),
      },
    },
  ]);
  expect(succeeded?.status.code).toBe(SpanStatusCode.UNSET);
});

test('slices of a task are spans that are linked to the same enqueue', async ({ db, startReplica }) => {
  const sliced: HandlersFor<TestTasks>['sliced'] = async ({ pages }, slice) => {
    const page = (slice.cursor?.page ?? 0) + 1;
    if (page === pages) return 'done';
    await slice.advanceCursor({ page });
    return 'continue';
  };
  const { events } = await startReplica({ slots: 1, handlers: { sliced } });
  await enqueue(db, 'sliced', { pages: 3 });
  await events.first('settled', isSettled('success'));

  const runs = spansNamed('process sliced');
  const sent = idsOf(spansNamed('send sliced'));
  expect(runs.map(linksOf)).toEqual([sent, sent, sent]);
  expect(runs.map((run) => run.attributes['messaging.taskq.outcome'])).toEqual([
    'continued',
    'continued',
    'success',
  ]);
});

test('what a handler enqueues carries on: its span is a child of the run, and the next run is linked to it', async ({
  db,
  startReplica,
}) => {
  const plain: PlainHandler = async () => void (await enqueue(db, 'fragile', {}));
  const { events } = await startReplica({ handlers: { plain } });
  await enqueue(db, 'plain', {});
  await events.first('settled', (event) => event.task.type === 'fragile');

  const [run, send, next] = [
    spanNamed('process plain'),
    spanNamed('send fragile'),
    spanNamed('process fragile'),
  ];
  expect(send.parentSpanContext?.spanId).toBe(run.spanContext().spanId);
  expect(linksOf(next)).toEqual(idsOf([send]));
});

test('the baggage of the enqueue is there in the handler', async ({ db, startReplica }) => {
  const seen = gate<string | undefined>();
  const plain: PlainHandler = async () =>
    seen.open(propagation.getActiveBaggage()?.getEntry('tenant')?.value);
  await startReplica({ handlers: { plain } });
  const baggage = propagation.createBaggage({ tenant: { value: 'acme' } });
  await context.with(propagation.setBaggage(ROOT_CONTEXT, baggage), () => enqueue(db, 'plain', {}));

  expect(await seen.promise).toBe('acme');
});

describe('a run that was told to stop', () => {
  test('at its deadline is an error of the type timeout', async ({ db, startReplica }) => {
    const clock = new ManualClock();
    const brief: HandlersFor<TestTasks>['brief'] = async (_payload, { signal }) => {
      await clock.advanceAsync(1_000);
      signal.throwIfAborted();
    };
    const { events } = await startReplica({ clock, timers: clock, handlers: { brief } });
    await enqueue(db, 'brief', {});
    await events.first('settled', isSettled('timeout'));

    const run = spanNamed('process brief');
    expect(run.attributes).toMatchObject({ 'messaging.taskq.outcome': 'timeout', 'error.type': 'timeout' });
    expect(run.status.code).toBe(SpanStatusCode.ERROR);
  });

  test('by a shutdown is none: a rollout shows no errors', async ({ db, startReplica }) => {
    const started = gate();
    const plain: PlainHandler = async (_payload, { signal }) => {
      started.open();
      await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    };
    const { app, events } = await startReplica({ handlers: { plain } });
    await enqueue(db, 'plain', {});
    await started.promise;
    await app.stop();
    await events.first('settled', isSettled('cancelled'));

    const run = spanNamed('process plain');
    expect(run.attributes).toMatchObject({ 'messaging.taskq.outcome': 'cancelled' });
    expect(run.attributes).not.toHaveProperty('error.type');
    expect(run.status.code).toBe(SpanStatusCode.UNSET);
    expect(run.events).toEqual([]);
  });
});

test('a task that was enqueued without a trace runs in a span without a link', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica();
  const untraced = createEnqueuer(testTasks, { tracing: false });
  await untraced.enqueue(db, 'plain', {});
  await events.first('settled');

  expect(spansNamed('send plain')).toEqual([]);
  expect(linksOf(spanNamed('process plain'))).toEqual([]);
});

test('with tracing: false there is no span, and the middleware that makes it may stand elsewhere', async ({
  db,
  startReplica,
}) => {
  const off = await startReplica({ tracing: false });
  const inside = createEnqueuer(testTasks, { tracing: false, middleware: [traceEnqueue()] });
  await inside.enqueue(db, 'plain', {});
  await off.events.first('settled');
  await off.app.stop();
  expect(spansNamed('send plain')).toHaveLength(1);
  expect(spansNamed('process plain')).toEqual([]);

  const own = await startReplica({ tracing: false, middleware: [traceRuns()] });
  await inside.enqueue(db, 'plain', {});
  await own.events.first('settled');
  expect(spansNamed('process plain')).toHaveLength(1);
});
