/**
 * Code around a call: it calls `next` once, and what it awaits of it is the rest. It observes and adds; it neither
 * stops nor changes what the call does.
 */
export type Middleware<Call, Addition> = (
  call: Call,
  next: (addition?: Addition) => Promise<void>,
) => Promise<void>;

export interface MiddlewareChain<Call, Addition, Answer> {
  /** Outermost first. */
  readonly middleware: readonly Middleware<Call, Addition>[];
  /** The call as the rest of the chain sees it. What it throws is the middleware's error. */
  extend(call: Call, addition: Addition): Call;
  /** The work itself. */
  innermost(call: Call): Promise<Answer>;
  /** Told what a middleware threw, unless it is the work's own error passed on. Must not throw. */
  onError(error: unknown): void;
}

/**
 * Runs the work inside its middleware. Whatever that does, the work runs exactly once, and what it answers or throws
 * is the answer: a middleware that throws, returns without `next` or calls it twice changes nothing.
 * Waits until the last middleware has returned.
 */
export async function runThrough<Call, Addition, Answer>(
  chain: MiddlewareChain<Call, Addition, Answer>,
  call: Call,
): Promise<Answer> {
  let outcome: { readonly answer: Answer } | { readonly error: unknown } | undefined;
  const work = async (current: Call): Promise<void> => {
    try {
      outcome = { answer: await chain.innermost(current) };
    } catch (error) {
      outcome = { error };
      throw error;
    }
  };
  const isWorksOwn = (error: unknown): boolean =>
    outcome !== undefined && 'error' in outcome && outcome.error === error;

  const step = async (position: number, current: Call): Promise<void> => {
    const middleware = chain.middleware[position];
    if (middleware === undefined) return work(current);
    let rest: Promise<void> | undefined;
    const next = (addition?: Addition): Promise<void> => {
      if (rest === undefined) {
        rest = step(position + 1, extended(chain, current, addition));
        // A middleware that does not await it must not end the process with an unhandled rejection.
        rest.catch(() => {});
      }
      return rest;
    };
    try {
      await middleware(current, next);
    } catch (error) {
      if (!isWorksOwn(error)) chain.onError(error);
    }
    // Goes on without a middleware that has not called it; otherwise it is the rest that began already.
    await next();
  };

  await step(0, call);
  return (outcome as unknown as { readonly answer: Answer }).answer;
}

function extended<Call, Addition>(
  chain: MiddlewareChain<Call, Addition, unknown>,
  call: Call,
  addition: Addition | undefined,
): Call {
  if (addition === undefined) return call;
  try {
    return chain.extend(call, addition);
  } catch (error) {
    chain.onError(error);
    return call;
  }
}
