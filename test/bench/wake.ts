import {
  amongClients,
  type Bench,
  clearTasks,
  enqueue,
  FLOOR_DATABASE,
  openApplication,
  payload,
  perSecond,
  scaled,
} from './bench.ts';
import { type FloorClient, withFloor } from './floor.ts';
import { comparison, type Line, measurement } from './stats.ts';

// What the notification costs when many enqueue at once, each in a transaction of its own: PostgreSQL commits those
// that notify one after the other, in the whole server. All four sides are measured in each round.

const CLIENTS = 32;
const CALLS = 3_000;
const WARM_UP_CALLS = 200;

type Wake = 'notify' | 'poll';
const SIDES = ['taskq notify', 'floor notify', 'taskq poll', 'floor poll'] as const;
type Side = (typeof SIDES)[number];

export async function measureWake(bench: Bench): Promise<Line[]> {
  const calls = scaled(CALLS, bench.options);
  const figures: Record<Side, number[]> = {
    'taskq notify': [],
    'floor notify': [],
    'taskq poll': [],
    'floor poll': [],
  };
  for (let round = 1; round <= bench.options.rounds; round += 1) {
    for (const side of round % 2 === 1 ? SIDES : SIDES.toReversed()) {
      figures[side].push(await measureSide(bench, side, calls));
    }
    const latest = SIDES.map((side) => `${side} ${figures[side].at(-1)?.toFixed(0)}`).join(', ');
    bench.progress(`wake, ${CLIENTS} clients, round ${round}/${bench.options.rounds}: ${latest}`);
  }
  const unit = 'commits/s';
  const line = (wake: Wake) =>
    comparison({
      name: `enqueue, in a transaction, ${CLIENTS} clients, wake ${wake}`,
      unit,
      better: 'higher',
      taskq: figures[`taskq ${wake}`],
      floor: figures[`floor ${wake}`],
    });
  const values = figures['taskq poll'].map(
    (poll, round) => poll / (figures['taskq notify'][round] as number),
  );
  return [
    line('notify'),
    line('poll'),
    measurement({ name: 'wake poll beside wake notify', unit: 'times', values }),
  ];
}

function measureSide(bench: Bench, side: Side, calls: number): Promise<number> {
  const wake: Wake = side.endsWith('notify') ? 'notify' : 'poll';
  return side.startsWith('taskq') ? commitTaskq(bench, wake, calls) : commitFloor(bench, wake, calls);
}

async function commitTaskq({ server }: Bench, wake: Wake, calls: number): Promise<number> {
  await clearTasks(server);
  const application = openApplication(server, CLIENTS);
  try {
    const commit = () =>
      application
        .transaction()
        .execute((transaction) => enqueue(transaction, 'bench_task', payload(1), { wake }));
    await amongClients(CLIENTS, WARM_UP_CALLS, commit);
    return await perSecond(calls, () => amongClients(CLIENTS, calls, commit));
  } finally {
    await application.destroy();
  }
}

async function commitFloor({ server }: Bench, wake: Wake, calls: number): Promise<number> {
  return withFloor(server.connection(FLOOR_DATABASE), CLIENTS, async (clients) => {
    const commit = async (at: number) => {
      const client = clients[at] as FloorClient;
      const text = JSON.stringify(payload(1));
      await client.begin();
      await (wake === 'notify' ? client.insertAndNotify(text) : client.insert(text));
      await client.commit();
    };
    await amongClients(CLIENTS, WARM_UP_CALLS, commit);
    return perSecond(calls, () => amongClients(CLIENTS, calls, commit));
  });
}
