import { formatDuration } from '../domain/duration.ts';
import { CLOCK_OFFSET_WARN_MS, REPLICA_ALIVE_MS } from '../domain/limits.ts';
import { readBacklog } from '../statements/doctor.ts';
import { listReplicas, type Replica } from '../statements/replicas.ts';
import { type Check, type CheckStatus, ok, verdict, worse } from './check.ts';
import { counted, named } from './phrases.ts';

// Who is there, by what the workers say of themselves every quarter of a minute.

/** Alive, and with slots. */
export const runsTasks = ({ isAlive, roles }: Replica): boolean => isAlive && roles.includes('processor');

const workers: Check = {
  id: 'workers',
  group: 'tasks',
  describes:
    'The workers that have reported within 45 seconds, their slots and clocks. Warning: none has slots, none prunes, slots are held by handlers past their deadline, or a clock is 3 s off. Problem: none has slots and tasks are due, or a clock is off by the lease margin.',
  async examine({ onPrimary, leaseMarginMs }) {
    const { replicas, backlog } = await onPrimary(async (lane) => ({
      replicas: await listReplicas(lane),
      backlog: await readBacklog(lane),
    }));
    const alive = replicas.filter(({ isAlive }) => isAlive);
    const faults = [
      ...slotFaults(
        alive,
        backlog.reduce((sum, { due }) => sum + due, 0),
      ),
      ...roleFaults(alive),
      ...clockFaults(alive, leaseMarginMs),
    ];
    if (faults.length === 0) return ok(describeWorkers(replicas));
    const status = faults.reduce<CheckStatus>((worst, fault) => worse(worst, fault.status), 'ok');
    const found = [...faults.map((fault) => fault.found), describeWorkers(replicas)];
    return verdict(status, named(found), ...faults.map(({ remedy }) => remedy));
  },
};

interface Fault {
  readonly status: CheckStatus;
  readonly found: string;
  readonly remedy: string;
}

function slotFaults(alive: readonly Replica[], due: number): Fault[] {
  const overrun = alive.filter((replica) => replica.overrun > 0);
  const faults: Fault[] = overrun.map(({ host, pid, overrun: lost }) => ({
    status: 'warning',
    found: `pid ${pid} on ${host} has lost ${counted(lost, 'slot')} to handlers past their deadline`,
    remedy:
      'pass the signal of the context on to what the handler waits for, or run it in a thread (inThread)',
  }));
  if (alive.some(runsTasks)) return faults;
  return [
    ...faults,
    {
      status: due > 0 ? 'problem' : 'warning',
      found: `no worker runs tasks, and ${counted(due, 'task is', 'tasks are')} due`,
      remedy: 'start one: taskq work',
    },
  ];
}

function roleFaults(alive: readonly Replica[]): Fault[] {
  if (alive.length === 0 || alive.some(({ roles }) => roles.includes('prune'))) return [];
  return [
    {
      status: 'warning',
      found: 'no worker has the role prune: what is past its time stays',
      remedy: 'give it to one: taskq work --roles processor,cron,prune; or run taskq prune every day',
    },
  ];
}

/** Their offset is the database's clock minus their own. */
function clockFaults(alive: readonly Replica[], leaseMarginMs: number): Fault[] {
  return alive.flatMap(({ host, pid, clockOffsetMs = 0 }): Fault[] => {
    const apart = Math.abs(clockOffsetMs);
    if (apart < CLOCK_OFFSET_WARN_MS) return [];
    return [
      {
        status: apart >= leaseMarginMs ? 'problem' : 'warning',
        found: `the clock of pid ${pid} on ${host} is ${formatDuration(apart)} ${clockOffsetMs > 0 ? 'behind' : 'ahead of'} the database`,
        remedy: `keep it with NTP: chronyc tracking on ${host}`,
      },
    ];
  });
}

function describeWorkers(replicas: readonly Replica[]): string {
  const alive = replicas.filter(runsTasks);
  const sum = (of: (replica: Replica) => number) => alive.reduce((total, replica) => total + of(replica), 0);
  const silent = replicas.filter(({ isAlive }) => !isAlive).length;
  const gone =
    silent === 0
      ? ''
      : `, ${silent} more went silent within the last day (${formatDuration(REPLICA_ALIVE_MS)} without a report)`;
  return `${counted(alive.length, 'worker')} with ${counted(
    sum(({ slots }) => slots),
    'slot',
  )}, ${sum(({ busy }) => busy)} busy${gone}`;
}

export const WORKER_CHECKS = [workers];
