import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type Bench, clearTasks, scaled, TASKQ_DATABASE } from './bench.ts';
import { type Line, measurement } from './stats.ts';

/** Tasks drained before the look at the memory. */
const TASKS = 50_000;
const MIB = 1_048_576;

/** What the replica's process tells of itself. Bytes, after a full collection. */
export interface MemoryReport {
  readonly loaded: NodeJS.MemoryUsage;
  readonly drained: NodeJS.MemoryUsage;
}

/** Memory of a process that is nothing but a replica with 100 slots, when it has drained its tasks. */
export async function measureMemory({ server, options, progress }: Bench): Promise<Line[]> {
  const tasks = scaled(TASKS, options);
  const reports: MemoryReport[] = [];
  for (let round = 1; round <= Math.min(options.rounds, 3); round += 1) {
    await clearTasks(server);
    reports.push(await runReplica({ connection: server.connection(TASKQ_DATABASE), tasks }));
    progress(`memory: a replica with 100 slots drained ${tasks} tasks`);
  }
  const line = (name: string, value: (report: MemoryReport) => number) =>
    measurement({ name, unit: 'MiB', values: reports.map((report) => value(report) / MIB) });
  return [
    line('replica, 100 slots, drained: RSS', ({ drained }) => drained.rss),
    line('replica, 100 slots, drained: heap used', ({ drained }) => drained.heapUsed),
    line('the same process before its start: RSS', ({ loaded }) => loaded.rss),
    line('the same process before its start: heap used', ({ loaded }) => loaded.heapUsed),
  ];
}

function runReplica(given: object): Promise<MemoryReport> {
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const program = fileURLToPath(new URL(`./memory-replica.${extension}`, import.meta.url));
  const child = fork(program, [JSON.stringify(given)], { execArgv: [...process.execArgv, '--expose-gc'] });
  return new Promise((resolve, reject) => {
    child.once('message', (report) => resolve(report as MemoryReport));
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`the replica's process ended with ${code}`)));
  });
}
