import { context, propagation, SpanKind, trace } from '@opentelemetry/api';
import type { EnqueueMiddleware } from '../domain/enqueue-middleware.ts';
import { TaskqError } from '../domain/errors.ts';
import { describeThrown } from '../domain/thrown.ts';
import {
  carriesContext,
  currentTracer,
  enqueuingSpan,
  messagingAttributes,
  recordFailure,
} from './tracer.ts';

/**
 * A span `send <type>` of the kind PRODUCER around every enqueue, whose context travels in the headers of its tasks.
 * Headers of the caller that carry a context already are left as they are; the span is linked to it then.
 * `createEnqueuer` puts it around by itself; it is here for one with `tracing: false` that wants it elsewhere.
 */
export function traceEnqueue(): EnqueueMiddleware {
  return async ({ type, queue, count, headers: given }, next) => {
    const tracer = currentTracer();
    if (tracer === undefined) {
      await next();
      return;
    }
    const custom = carriesContext(given) ? enqueuingSpan(given) : undefined;
    const span = tracer.startSpan(`send ${type}`, {
      kind: SpanKind.PRODUCER,
      attributes: messagingAttributes('send', type, queue),
      links: custom === undefined ? [] : [{ context: custom }],
    });
    const within = trace.setSpan(context.active(), span);
    try {
      const headers: Record<string, string> = {};
      if (!carriesContext(given)) propagation.inject(within, headers);
      const { tasks } = await context.with(within, () => next({ headers }));
      const [only] = tasks ?? [];
      if (count === 1 && only !== undefined) {
        span.setAttributes({ 'messaging.message.id': only.id, 'messaging.taskq.status': only.status });
      } else if (tasks !== undefined) span.setAttribute('messaging.batch.message_count', tasks.length);
    } catch (error) {
      recordFailure(span, describeThrown(error), error instanceof TaskqError ? error.code : undefined);
      throw error;
    } finally {
      span.end();
    }
  };
}
