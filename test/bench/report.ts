import { readFileSync } from 'node:fs';
import os from 'node:os';
import Table from 'cli-table3';
import { type Bench, onClient } from './bench.ts';
import { type Figures, isMet, type Line, spread, type Target } from './stats.ts';

/** Where the figures come from. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGib: number;
  readonly system: string;
  readonly node: string;
  readonly postgres: string;
  /** Those that decide what a commit costs, and the size of the cache. */
  readonly settings: Readonly<Record<string, string>>;
  /** Of the last minute, before the first measurement: other work on the machine shows here. */
  readonly loadBefore: number;
}

const SETTINGS = [
  'fsync',
  'synchronous_commit',
  'full_page_writes',
  'wal_sync_method',
  'shared_buffers',
  'max_connections',
];

export async function describeMachine(server: Bench['server']): Promise<Machine> {
  const settings = await onClient(server, 'postgres', async (client) => {
    const { rows } = await client.query<{ name: string; value: string }>(
      'select name, current_setting(name) as value from pg_settings where name = any($1)',
      [SETTINGS],
    );
    return Object.fromEntries(rows.map(({ name, value }) => [name, value]));
  });
  return {
    cpu: cpuModel(),
    cores: os.availableParallelism(),
    memoryGib: Math.round(os.totalmem() / 1_073_741_824),
    system: `${os.type()} ${os.release()} ${os.arch()}`,
    node: process.version,
    postgres: server.version,
    settings,
    loadBefore: os.loadavg()[0] as number,
  };
}

/** The lines as a table for people. No colour: it is pasted into documents. */
export function renderTable(lines: readonly Line[], machine: Machine, rounds: number): string {
  const table = new Table({
    head: ['', 'taskq', 'raw floor', 'ratio', 'target'],
    style: { head: [], border: [], compact: true },
    colAligns: ['left', 'right', 'right', 'right', 'left'],
  });
  for (const line of lines) table.push(cells(line));
  return [
    table.toString(),
    `Median (lowest to highest) of ${rounds} rounds; a ratio is taskq / floor of the same round.`,
    `Drain and enqueue: more is better. Latency, statements, memory: less is better.`,
    '',
    ...describe(machine),
  ].join('\n');
}

function cells(line: Line): string[] {
  if (line.kind === 'measurement') {
    return [`${line.name}, ${line.unit}`, figure(line.values), '', '', targetText(line)];
  }
  const { name, unit, taskq, floor, ratios } = line;
  return [`${name}, ${unit}`, figure(taskq), figure(floor), ratio(ratios), targetText(line)];
}

export function describe(machine: Machine): string[] {
  const settings = Object.entries(machine.settings).map(([name, value]) => `${name}=${value}`);
  return [
    `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGib} GiB, ${machine.system}, load ${machine.loadBefore.toFixed(1)}`,
    `Node ${machine.node}, PostgreSQL ${machine.postgres} (durable, unix socket): ${settings.join(', ')}`,
  ];
}

function targetText(line: Line & { readonly target: Target | undefined }): string {
  if (line.target === undefined) return '';
  const { at, value } = line.target;
  return `${at === 'least' ? '>=' : '<='} ${value}: ${isMet(line) === true ? 'met' : 'MISSED'}`;
}

function figure(values: Figures): string {
  const { median, min, max } = spread(values);
  if (values.length === 1) return number(median);
  return `${number(median)} (${number(min)}–${number(max)})`;
}

function ratio(values: Figures): string {
  const { median, min, max } = spread(values);
  return `${median.toFixed(2)} (${min.toFixed(2)}–${max.toFixed(2)})`;
}

function number(value: number): string {
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// Some virtual machines give Node no model, and the kernel knows one all the same.
function cpuModel(): string {
  const [cpu] = os.cpus();
  if (cpu !== undefined && cpu.model.trim() !== '' && cpu.model !== 'unknown') return cpu.model.trim();
  try {
    return /model name\s*:\s*(.+)/.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? 'unknown CPU';
  } catch {
    return 'unknown CPU';
  }
}
