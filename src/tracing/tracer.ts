import {
  type Attributes,
  propagation,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import type { ThrownDescription } from '../domain/thrown.ts';

// Only the API of OpenTelemetry: which spans are kept, and where they go, is the application's SDK. Everything is
// looked up at the moment of use, since that SDK may be registered later than the first enqueuer is made.

/** The name of the instrumentation, as it stands on every span. */
const INSTRUMENTATION = 'taskq';

/** Whether an SDK is registered: without one every span is none, and the work around it would be for nothing. */
export function isTracing(): boolean {
  return currentTracer() !== undefined;
}

/** Undefined while no SDK is registered. */
export function currentTracer(): Tracer | undefined {
  const provider = trace.getTracerProvider();
  // The API's own stand-in, until it is given an SDK to stand for. Told by its shape: it may be of another copy.
  if (isStandIn(provider)) return provider.getDelegateTracer(INSTRUMENTATION);
  return provider.getTracer(INSTRUMENTATION);
}

interface StandIn {
  getDelegateTracer(name: string): Tracer | undefined;
}

function isStandIn(provider: object): provider is StandIn {
  return 'getDelegateTracer' in provider;
}

/** The attributes that every span of the queue has, by the semantic conventions for messaging. */
export function messagingAttributes(operation: 'send' | 'process', type: string, queue: string): Attributes {
  return {
    'messaging.system': 'taskq',
    'messaging.operation.name': operation,
    'messaging.operation.type': operation,
    'messaging.destination.name': queue,
    'messaging.taskq.task_type': type,
  };
}

type Headers = Readonly<Record<string, string>>;

/** The span under which a task was enqueued; undefined when its headers name none. */
export function enqueuingSpan(headers: Headers): SpanContext | undefined {
  return trace.getSpanContext(propagation.extract(ROOT_CONTEXT, headers));
}

/** Whether the headers carry a context of their own, by the registered propagator. */
export function carriesContext(headers: Headers): boolean {
  return propagation.fields().some((field) => Object.hasOwn(headers, field));
}

/** Marks the span as failed, with the exception that says why. */
export function recordFailure(span: Span, { name, message, stack }: ThrownDescription, type = name): void {
  span.recordException({ name, message, ...(stack === undefined ? {} : { stack }) });
  span.setAttribute('error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}
