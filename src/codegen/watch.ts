import { watch } from 'node:fs';
import path from 'node:path';
import { systemTimers, type Timer, type Timers } from '../domain/time.ts';

/** An editor writes a file in several steps: what changes within this time is one change. */
const QUIET_MS = 100;

/** What task definitions are written in, and what they import. */
const SOURCE = /\.(?:[cm]?[jt]sx?|json)$/;

/**
 * Calls `onChange` after source files below `cwd` have changed, and never while an earlier call is under way: what
 * changes meanwhile is one further call. The generated files, installed packages and dot folders do not count.
 * Ends with `stopping`.
 */
export async function watchSources(
  { cwd, outDir, timers = systemTimers }: { cwd: string; outDir: string; timers?: Timers },
  stopping: AbortSignal,
  onChange: () => Promise<void>,
): Promise<void> {
  const ignored = path.relative(cwd, path.resolve(cwd, outDir));
  let quiet: Timer | undefined;
  let isRunning = false;
  let isDue = false;
  const run = async () => {
    isDue = true;
    if (isRunning) return;
    isRunning = true;
    while (isDue && !stopping.aborted) {
      isDue = false;
      await onChange();
    }
    isRunning = false;
  };
  const watcher = watch(cwd, { recursive: true, signal: stopping }, (_event, name) => {
    if (name === null || !isSource(name, ignored)) return;
    quiet?.cancel();
    quiet = timers.after(QUIET_MS, () => void run());
  });
  await new Promise<void>((resolve) => {
    watcher.on('close', resolve);
    watcher.on('error', () => resolve());
  });
  quiet?.cancel();
}

function isSource(name: string, ignored: string): boolean {
  const steps = name.split(path.sep);
  if (steps.some((step) => step === 'node_modules' || step.startsWith('.'))) return false;
  return SOURCE.test(name) && name !== ignored && !name.startsWith(ignored + path.sep);
}
