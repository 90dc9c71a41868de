import pg from 'pg';
import { onTestFinished, vi } from 'vitest';

export interface SentStatement {
  /** The connection it went out on: with `poolMax: 1` there is one for each replica. */
  readonly client: pg.Client;
  readonly text: string;
}

export interface SentStatements {
  readonly all: readonly SentStatement[];
  claims(): readonly SentStatement[];
  discoveries(): readonly SentStatement[];
}

/** Records every statement that any connection of this process sends from now on, until the test ends. */
export function recordStatements(): SentStatements {
  const all: SentStatement[] = [];
  const send = pg.Client.prototype.query as unknown as (this: pg.Client, ...args: unknown[]) => unknown;
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (
    this: pg.Client,
    ...args: unknown[]
  ) {
    const [query] = args as [string | { text?: string }];
    all.push({ client: this, text: typeof query === 'string' ? query : (query.text ?? '') });
    return send.apply(this, args);
  } as never);
  onTestFinished(() => spy.mockRestore());
  return {
    all,
    claims: () => all.filter(({ text }) => text.startsWith('with "picked" as materialized')),
    discoveries: () => all.filter(({ text }) => text.includes('candidate.id::text')),
  };
}

/**
 * Calls `hook` once, when the answer to the next statement that matches has arrived and before whoever asked
 * sees it: the moment between a database's answer and its use, which no lock can hold open.
 */
export function betweenAnswerAndUse(matches: (text: string) => boolean, hook: () => Promise<void>): void {
  const send = pg.Client.prototype.query as unknown as (this: pg.Client, ...args: unknown[]) => unknown;
  let isOver = false;
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (
    this: pg.Client,
    ...args: unknown[]
  ) {
    const [query] = args as [string | { text?: string }];
    const text = typeof query === 'string' ? query : (query.text ?? '');
    const answer = send.apply(this, args);
    if (isOver || !matches(text)) return answer;
    isOver = true;
    return (answer as Promise<unknown>).then(async (result) => {
      await hook();
      return result;
    });
  } as never);
  onTestFinished(() => spy.mockRestore());
}

export const isDiscovery = (text: string): boolean => text.includes('candidate.id::text');
