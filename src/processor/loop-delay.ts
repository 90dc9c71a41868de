import { monitorEventLoopDelay } from 'node:perf_hooks';
import { LOOP_DELAY_WARN_MS } from '../domain/limits.ts';
import type { Observer } from '../domain/observer.ts';
import type { Timer, Timers } from '../domain/time.ts';

/** How often the worst delay since the last look is read. */
const LOOK_INTERVAL_MS = 1_000;

/**
 * Says when the event loop was blocked: a handler that computes without a pause keeps this whole replica from
 * its wakes, its deadlines and its shutdown, and nothing else would show it. `onLook` hears of every look.
 */
export function watchLoopDelay(timers: Timers, observe: Observer, onLook?: (delayMs: number) => void): Timer {
  const histogram = monitorEventLoopDelay({ resolution: 20 });
  histogram.enable();
  let timer: Timer;
  let reading: NodeJS.Immediate | undefined;
  let lookDueAt = performance.now() + LOOK_INTERVAL_MS;
  // After a block this timer may fire before the histogram's own has recorded it, and a reset would forget the
  // interval that is just ending: the block would never be seen. All due timers have fired by the immediate.
  // A block that begins before the histogram's first interval after a reset is seen by how late this look is.
  const look = () => {
    const lateMs = performance.now() - lookDueAt;
    reading = setImmediate(() => {
      const delayMs = Math.max(histogram.max / 1e6, lateMs);
      histogram.reset();
      onLook?.(delayMs);
      if (delayMs > LOOP_DELAY_WARN_MS) observe({ kind: 'loop_delayed', delayMs });
      lookDueAt = performance.now() + LOOK_INTERVAL_MS;
      timer = timers.after(LOOK_INTERVAL_MS, look, { unref: true });
    });
  };
  timer = timers.after(LOOK_INTERVAL_MS, look, { unref: true });
  return {
    cancel() {
      timer.cancel();
      clearImmediate(reading);
      histogram.disable();
    },
  };
}
