import { type Bench, startServer } from './bench.ts';
import { measureDrain } from './drain.ts';
import { measureEnqueue } from './enqueue.ts';
import { measureIdle } from './idle.ts';
import { measureLatency } from './latency.ts';
import { measureMemory } from './memory.ts';
import { type BenchOptions, readOptions, type Section, USAGE } from './options.ts';
import { describeMachine, renderTable } from './report.ts';
import { measureSlices } from './slices.ts';
import { isMet, type Line, spread } from './stats.ts';
import { measureWake } from './wake.ts';

// Measures taskq beside the barest form of the same work, on a durable server of its own. Progress goes to
// stderr, the result to stdout.

const MEASURES: Readonly<Record<Section, (bench: Bench) => Promise<Line[]>>> = {
  drain: measureDrain,
  enqueue: measureEnqueue,
  wake: measureWake,
  latency: measureLatency,
  slices: measureSlices,
  idle: measureIdle,
  memory: measureMemory,
};

async function run(options: BenchOptions): Promise<boolean> {
  const startedAt = performance.now();
  const progress = (message: string) => {
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
    process.stderr.write(`${seconds.padStart(4)} s  ${message}\n`);
  };
  const server = await startServer(progress);
  try {
    const machine = await describeMachine(server);
    const lines: Line[] = [];
    for (const section of options.only) {
      lines.push(...(await MEASURES[section]({ server, options, progress })));
    }
    const { rounds, scale } = options;
    console.log(
      options.json
        ? JSON.stringify({ machine, rounds, scale, lines: lines.map(withSummary) }, undefined, 2)
        : renderTable(lines, machine, rounds),
    );
    return lines.every((line) => isMet(line) !== false);
  } finally {
    await server.stop();
  }
}

function withSummary(line: Line): object {
  const met = isMet(line);
  if (line.kind === 'measurement') return { ...line, summary: spread(line.values), met };
  const { taskq, floor, ratios } = line;
  return { ...line, summary: { taskq: spread(taskq), floor: spread(floor), ratio: spread(ratios) }, met };
}

try {
  const options = readOptions(process.argv.slice(2));
  if (options === 'help') console.log(USAGE);
  else if (!(await run(options)) && options.check) process.exitCode = 1;
} catch (error) {
  console.error(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 2;
}
