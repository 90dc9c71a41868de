import { parseArgs } from 'node:util';

export const SECTIONS = ['drain', 'enqueue', 'wake', 'latency', 'slices', 'idle', 'memory'] as const;
export type Section = (typeof SECTIONS)[number];

export interface BenchOptions {
  readonly only: readonly Section[];
  /** Each round measures both sides, one right after the other. */
  readonly rounds: number;
  /** Multiplies every number of tasks and every length of time. */
  readonly scale: number;
  readonly json: boolean;
  /** Exit with 1 when a target is missed. */
  readonly check: boolean;
}

export const USAGE = `npm run bench -- [options]

  --only <sections>  of ${SECTIONS.join(', ')}, separated by commas; default all
  --quick            a fast look: 3 rounds, a fifth of the tasks
  --rounds <n>       rounds of each comparison; default 7
  --scale <factor>   multiplies the numbers of tasks; default 1
  --json             print JSON instead of the table
  --check            exit with 1 when a target is missed
  --help`;

const ROUNDS = 7;
const ROUNDS_QUICK = 3;
const SCALE_QUICK = 0.2;

/** @throws Error naming the option that is wrong */
export function readOptions(args: readonly string[]): BenchOptions | 'help' {
  const { values } = parseArgs({
    args: [...args],
    options: {
      only: { type: 'string' },
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      scale: { type: 'string' },
      json: { type: 'boolean', default: false },
      check: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return 'help';
  const rounds = positive(values.rounds, '--rounds') ?? (values.quick ? ROUNDS_QUICK : ROUNDS);
  if (!Number.isInteger(rounds)) throw new Error(`--rounds: expected a whole number, received ${rounds}`);
  return {
    only: values.only === undefined ? SECTIONS : values.only.split(',').map(section),
    rounds,
    scale: positive(values.scale, '--scale') ?? (values.quick ? SCALE_QUICK : 1),
    json: values.json,
    check: values.check,
  };
}

function section(name: string): Section {
  const found = SECTIONS.find((known) => known === name.trim());
  if (found === undefined) throw new Error(`--only: there is no '${name}'; there are ${SECTIONS.join(', ')}`);
  return found;
}

function positive(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (value > 0 && Number.isFinite(value)) return value;
  throw new Error(`${option}: expected a number above 0, received '${text}'`);
}
