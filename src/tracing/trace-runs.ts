import {
  type Context,
  context,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import type { HandlerEnd, RunCall, RunMiddleware } from '../processor/run-middleware.ts';
import { currentTracer, messagingAttributes, recordFailure } from './tracer.ts';

/**
 * A span `process <type>` of the kind CONSUMER around every run of a handler: the root of a trace of its own, linked to
 * the span that enqueued the task, as all runs and slices of the task are. The spans of the handler are its children,
 * and so is what the handler enqueues; the baggage of the enqueue is there too.
 * `createApp` puts it around by itself; it is here for one with `tracing: false` that wants it elsewhere.
 */
export function traceRuns(): RunMiddleware {
  return async (run, next) => {
    const tracer = currentTracer();
    if (tracer === undefined) {
      await next();
      return;
    }
    const carried = propagation.extract(ROOT_CONTEXT, run.headers);
    const enqueued = trace.getSpanContext(carried);
    const span = tracer.startSpan(
      `process ${run.task.type}`,
      {
        kind: SpanKind.CONSUMER,
        // A trace of its own: as a child, a retry after a week would be part of a trace that nobody looks at any more,
        // and a slot that was started within a span would hang every run of its life below that span.
        root: true,
        links: enqueued === undefined ? [] : [{ context: enqueued }],
        attributes: attributesOf(run),
      },
      carried,
    );
    await within(trace.setSpan(carried, span), span, next);
  };
}

async function within(carried: Context, span: Span, next: () => Promise<HandlerEnd>): Promise<void> {
  try {
    const end = await context.with(carried, next);
    span.setAttribute('messaging.taskq.outcome', end.outcome);
    if (end.kind === 'continue' && end.outcome === 'timeout') {
      span.setAttribute('error.type', 'timeout');
      span.setStatus({ code: SpanStatusCode.ERROR, message: 'the slice ran past its deadline' });
    }
    // At a shutdown the handler throws because it was told to: a rollout must not show as errors.
    if (end.kind === 'threw' && end.outcome !== 'cancelled' && end.outcome !== 'continued') {
      recordFailure(span, end.describe(), end.outcome === 'timeout' ? 'timeout' : undefined);
    }
  } finally {
    span.end();
  }
}

function attributesOf({ task, waitedMs }: RunCall) {
  return {
    ...messagingAttributes('process', task.type, task.queue),
    'messaging.message.id': task.id,
    'messaging.taskq.attempt': task.attempt,
    'messaging.taskq.max_attempts': task.maxAttempts,
    'messaging.taskq.waited_ms': waitedMs,
  };
}
