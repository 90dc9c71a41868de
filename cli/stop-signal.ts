import { constants } from 'node:os';
import { SIGNAL_ECHO_MS } from '../src/domain/limits.ts';
import { say } from './output.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
type Signal = (typeof SIGNALS)[number];

/** An interval this long does nothing but keep the process alive. */
const KEEP_ALIVE_MS = 3_600_000;

export interface StopSignal {
  /** Resolves with the first signal, and keeps the process alive until then. */
  readonly requested: Promise<Signal>;
  /** From here on signals do what they do by default, and the process may end. */
  forget(): void;
}

/** Takes SIGINT, SIGTERM and SIGHUP: the first asks for a stop, a second one exits at once with 128 + its number. */
export function stopSignal(): StopSignal {
  let first: { signal: Signal; at: number } | undefined;
  let request: (signal: Signal) => void;
  const requested = new Promise<Signal>((resolve) => {
    request = resolve;
  });
  const alive = setInterval(() => undefined, KEEP_ALIVE_MS);
  const heard = (signal: Signal) => {
    if (first === undefined) {
      first = { signal, at: performance.now() };
      clearInterval(alive);
      request(signal);
      return;
    }
    if (signal === first.signal && performance.now() - first.at < SIGNAL_ECHO_MS) return;
    say(`taskq: second signal (${signal}), exiting at once`);
    process.exit(128 + constants.signals[signal]);
  };
  for (const signal of SIGNALS) process.on(signal, heard);
  return {
    requested,
    forget() {
      clearInterval(alive);
      for (const signal of SIGNALS) process.off(signal, heard);
    },
  };
}
