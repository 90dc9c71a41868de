import { setTimeout as delay } from 'node:timers/promises';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { EmbeddedPostgres } from '../../src/embedded/index.ts';
import { type App, createApp, type Observer } from '../../src/index.ts';
import { COST_DATABASE, type Purpose, type Statements, statementsDuring } from './cost-counts.ts';
import { costHandlers, enqueueExample } from './cost-tasks.ts';
import { SettledCount } from './drain.ts';

/** Longer than a minute, so that the heartbeat of each LISTEN connection is in it. */
const WATCH_MS = 65_000;
/** What a start costs is over by then. */
const SETTLE_MS = 3_000;
const SLOTS = 4;
/** Tasks of the trickle: far enough apart that every replica is idle again. */
const TRICKLE_MS = 500;
const TRICKLE_TASKS = 60;

type Counted = ReadonlyMap<Purpose, Statements>;

export interface IdleCost {
  readonly replicas: number;
  readonly hasReadReplica: boolean;
  readonly seconds: number;
  readonly primary: Counted;
  readonly standby: Counted | undefined;
}

export interface TrickleCost {
  readonly replicas: number;
  readonly wake: 'notify' | 'poll';
  readonly tasks: number;
  readonly primary: Counted;
  /** Claims that another replica was faster than. */
  readonly claimsEmpty: number;
}

interface Servers {
  readonly primary: EmbeddedPostgres;
  readonly standby: EmbeddedPostgres;
}

interface Watch {
  readonly scale: number;
  progress(message: string): void;
}

/** Statements of replicas that have nothing to do: one and ten, without and with a read replica. */
export async function measureIdle(
  { primary, standby }: Servers,
  { scale, progress }: Watch,
): Promise<IdleCost[]> {
  const costs: IdleCost[] = [];
  for (const hasReadReplica of [false, true]) {
    for (const replicas of [1, 10]) {
      const watchMs = Math.max(5_000, WATCH_MS * scale);
      progress(
        `idle: ${replicas} replicas ${hasReadReplica ? 'with' : 'without'} a read replica, ${watchMs / 1_000} s`,
      );
      const apps = await startApps({ primary, standby: hasReadReplica ? standby : undefined }, replicas);
      try {
        await delay(SETTLE_MS);
        let onStandby: Counted | undefined;
        const onPrimary = await statementsDuring(
          primary,
          async () => {
            onStandby = await statementsDuring(standby, () => delay(watchMs), progress);
          },
          progress,
        );
        costs.push({
          replicas,
          hasReadReplica,
          seconds: watchMs / 1_000,
          primary: onPrimary,
          standby: hasReadReplica ? onStandby : undefined,
        });
      } finally {
        await Promise.all(apps.map((app) => app.stop()));
      }
    }
  }
  return costs;
}

/** What one task costs a fleet that is idle when it comes: everybody is woken, one gets it. */
export async function measureTrickle(
  { primary }: Servers,
  { scale, progress }: Watch,
): Promise<TrickleCost[]> {
  const costs: TrickleCost[] = [];
  const tasks = Math.max(10, Math.round(TRICKLE_TASKS * scale));
  for (const wake of ['notify', 'poll'] as const) {
    for (const replicas of [1, 10]) {
      progress(`trickle: ${replicas} replicas, ${tasks} tasks, wake ${wake}`);
      const settled = new SettledCount();
      let claimsEmpty = 0;
      const observer: Observer = (event) => {
        if (event.kind === 'claim_empty') claimsEmpty += 1;
        settled.observe(event);
      };
      const apps = await startApps({ primary, standby: undefined }, replicas, observer);
      const pool = new pg.Pool({ ...primary.connection(COST_DATABASE), max: 1 });
      const application = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
      try {
        await delay(SETTLE_MS);
        const counted = await statementsDuring(
          primary,
          async () => {
            const all = settled.next(tasks);
            for (let position = 0; position < tasks; position += 1) {
              await enqueueExample(application, position, wake);
              await delay(TRICKLE_MS);
            }
            await all;
          },
          progress,
        );
        costs.push({ replicas, wake, tasks, primary: counted, claimsEmpty });
      } finally {
        await application.destroy();
        await Promise.all(apps.map((app) => app.stop()));
      }
    }
  }
  return costs;
}

async function startApps(
  {
    primary,
    standby,
  }: { readonly primary: EmbeddedPostgres; readonly standby: EmbeddedPostgres | undefined },
  replicas: number,
  observer?: Observer,
): Promise<App[]> {
  const apps = Array.from({ length: replicas }, () =>
    createApp({
      database: primary.connection(COST_DATABASE),
      ...(standby === undefined ? {} : { readDatabase: standby.connection(COST_DATABASE) }),
      handlers: costHandlers(),
      slots: SLOTS,
      // The prune comes once an hour, and would be in the minute that is watched.
      roles: ['processor'],
      ...(observer === undefined ? {} : { observer }),
    }),
  );
  await Promise.all(apps.map((app) => app.start()));
  return apps;
}
