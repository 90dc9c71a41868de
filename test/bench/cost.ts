import { parseArgs } from 'node:util';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { startReplicaPair } from '../support/replica-pair.ts';
import { COUNTING_SETTINGS, type Purpose, prepareCounting, type Statements, total } from './cost-counts.ts';
import { type IdleCost, measureIdle, measureTrickle, type TrickleCost } from './cost-idle.ts';
import { measureTasks, type TaskCost } from './cost-tasks.ts';
import { describe, describeMachine, type Machine } from './report.ts';

// `npm run cost`: what taskq costs its database, as tables for docs/cost.md. Progress goes to stderr.

const USAGE = `npm run cost -- [--quick]

  --quick   a tenth of the tasks and of the time`;
const SCALE_QUICK = 0.1;

const startedAt = performance.now();
function progress(message: string): void {
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
  process.stderr.write(`${seconds.padStart(4)} s  ${message}\n`);
}

interface Costs {
  readonly machine: Machine;
  readonly tasks: readonly TaskCost[];
  readonly idle: readonly IdleCost[];
  readonly trickle: readonly TrickleCost[];
}

async function measureAll(scale: number): Promise<Costs> {
  const { machine, tasks } = await onDurableServer(scale);
  const pair = await startReplicaPair(COUNTING_SETTINGS);
  try {
    await prepareCounting(pair.primary);
    await pair.caughtUp();
    const servers = { primary: pair.primary, standby: pair.replica };
    const idle = await measureIdle(servers, { scale, progress });
    return { machine, tasks, idle, trickle: await measureTrickle(servers, { scale, progress }) };
  } finally {
    await pair.stop();
  }
}

async function onDurableServer(scale: number): Promise<Pick<Costs, 'machine' | 'tasks'>> {
  const server = await startEmbeddedPostgres({
    durable: true,
    settings: COUNTING_SETTINGS,
    onProgress: progress,
  });
  try {
    await prepareCounting(server);
    const machine = await describeMachine(server);
    return { machine, tasks: await measureTasks(server, { scale, progress }) };
  } finally {
    await server.stop();
  }
}

function render({ machine, tasks, idle, trickle }: Costs): string {
  return [
    '### One task',
    '',
    ...table(
      [
        'a task',
        'statements',
        'of these: enqueue',
        'discover',
        'claim',
        'settle',
        'heartbeat',
        'begin, commit',
        'WAL bytes',
        'dead row versions',
        'of these heap-only',
      ],
      tasks.map(({ name, tasks: count, counts }) => [
        name,
        per(work(counts.statements), count),
        ...(['enqueue', 'discover', 'claim', 'settle', 'heartbeat', 'transaction'] as const).map((purpose) =>
          per(callsOf(counts.statements, purpose), count),
        ),
        Math.round(counts.walBytes / count).toLocaleString('en-US'),
        per(counts.deadVersions, count),
        per(counts.heapOnly, count),
      ]),
    ),
    '',
    '### Idle replicas',
    '',
    ...table(
      [
        'replicas',
        'read replica',
        'primary, statements/s',
        'of these: discover',
        'presence',
        'LISTEN heartbeat and other',
        'read replica, statements/s',
      ],
      idle.map(({ replicas, hasReadReplica, seconds, primary, standby }) => [
        String(replicas),
        hasReadReplica ? 'yes' : 'no',
        per(total(primary), seconds),
        per(callsOf(primary, 'discover'), seconds),
        per(callsOf(primary, 'presence'), seconds),
        per(callsOf(primary, 'other'), seconds),
        standby === undefined ? '' : per(total(standby), seconds),
      ]),
    ),
    '',
    '### One task for idle replicas',
    '',
    ...table(
      ['replicas', 'wake', 'discover', 'claim', 'of these without a row', 'settle'],
      trickle.map(({ replicas, wake, tasks: count, primary, claimsEmpty }) => [
        String(replicas),
        wake,
        per(callsOf(primary, 'discover'), count),
        per(callsOf(primary, 'claim'), count),
        per(claimsEmpty, count),
        per(callsOf(primary, 'settle'), count),
      ]),
    ),
    '',
    ...describe(machine).map((line) => `    ${line}`),
  ].join('\n');
}

/** Without what a replica sends whether it works or not. */
function work(statements: ReadonlyMap<Purpose, Statements>): number {
  return total(statements) - callsOf(statements, 'presence') - callsOf(statements, 'other');
}

function callsOf(statements: ReadonlyMap<Purpose, Statements>, purpose: Purpose): number {
  return statements.get(purpose)?.calls ?? 0;
}

const per = (amount: number, of: number) => (amount / of).toFixed(2);

function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, column) => (column === 0 ? '---' : '---:'))), ...rows.map(line)];
}

try {
  const { values } = parseArgs({ options: { quick: { type: 'boolean' }, help: { type: 'boolean' } } });
  if (values.help) console.log(USAGE);
  else console.log(render(await measureAll(values.quick ? SCALE_QUICK : 1)));
} catch (error) {
  console.error(`cost: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 2;
}
