import { sql } from 'kysely';
import { enqueue, type PayloadInput, type TaskType, tasks } from '../../generated/tasks.ts';
import type { Stores } from '../../src/demo/stores.ts';
import { createHandlers, type HandlerServices } from '../../src/handlers/index.ts';
import { drain, runTask } from '../../src/testing/index.ts';
import { type Fault, failure, startFaultyStore } from './support/faulty-store.ts';
import {
  type AddedStack,
  addOrganisation,
  addStack,
  describe,
  expect,
  keysBelow,
  markDeleted,
  putInIndex,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

// What every handler of the platform promises, whatever its task is: run twice, once and then again, it leaves the
// same; stopped half-way it ends at once, says why and leaves nothing half done; a store that fails is its failure,
// and the next run's success; and what it cannot use never reaches it.

interface Scene {
  readonly live: AddedStack;
  readonly deleted: AddedStack;
}

type Store = 'platform' | 'explore' | 'objects';

interface Contract<Type extends TaskType = TaskType> {
  readonly type: Type;
  readonly payload: (scene: Scene) => PayloadInput<Type>;
  /** The stores it uses. Each is made to fail in turn. */
  readonly uses: readonly Store[];
  /** Locks what the handler writes or reads in a database, so that it is stopped half-way. */
  readonly stopAt: { readonly store: 'platform' | 'explore'; readonly table: string } | 'objects';
  readonly badPayloads: readonly object[];
}

const NO_UUID = 'no-uuid';
const snapshot = ({ live }: Scene) => ({ stackId: live.stackId, generation: 1 });
const organisation = ({ live }: Scene) => ({ organisationId: live.organisationId });
const badSnapshots = [
  {},
  { stackId: NO_UUID, generation: 1 },
  { stackId: crypto.randomUUID(), generation: 0 },
];
const badOrganisations = [{}, { organisationId: NO_UUID }, { organisationId: crypto.randomUUID(), more: 1 }];

const CONTRACTS: { readonly [Type in TaskType]: Omit<Contract<Type>, 'type'> } = {
  prefix_delete: {
    payload: ({ deleted }) => ({ prefix: `stacks/${deleted.storageKey}/` }),
    uses: ['platform', 'objects'],
    stopAt: 'objects',
    badPayloads: [
      {},
      { prefix: '' },
      { prefix: 'stacks/' },
      { prefix: 'stacks/a' },
      { prefix: 'stacks/a/b/' },
    ],
  },
  explore_purge: {
    payload: ({ deleted }) => ({ stackId: deleted.stackId }),
    uses: ['platform', 'explore'],
    stopAt: { store: 'explore', table: 'resources' },
    badPayloads: [{}, { stackId: NO_UUID }],
  },
  explore_diagnostics: {
    payload: (scene) => ({ ...organisation(scene), generation: 1 }),
    uses: ['explore'],
    stopAt: { store: 'explore', table: 'findings' },
    badPayloads: badOrganisations,
  },
  resource_index_reindex: {
    payload: snapshot,
    uses: ['platform', 'explore', 'objects'],
    stopAt: { store: 'explore', table: 'resources' },
    badPayloads: badSnapshots,
  },
  resource_index_rebuild: {
    payload: organisation,
    uses: ['platform', 'explore', 'objects'],
    stopAt: { store: 'explore', table: 'resources' },
    badPayloads: badOrganisations,
  },
  dependency_graph_reconcile: {
    payload: snapshot,
    uses: ['platform', 'objects'],
    stopAt: { store: 'platform', table: 'edges' },
    badPayloads: badSnapshots,
  },
  dependency_graph_rebuild: {
    payload: organisation,
    uses: ['platform', 'objects'],
    stopAt: { store: 'platform', table: 'edges' },
    badPayloads: badOrganisations,
  },
  dependent_triggers_resolve: {
    payload: snapshot,
    uses: ['platform'],
    stopAt: { store: 'platform', table: 'triggered_runs' },
    badPayloads: badSnapshots,
  },
  seat_cap_audit: {
    payload: organisation,
    uses: ['platform'],
    stopAt: { store: 'platform', table: 'seat_audits' },
    badPayloads: badOrganisations,
  },
};
const contracts = Object.entries(CONTRACTS).map(
  ([type, contract]) => [type, { type, ...contract } as Contract] as const,
);

/** A live stack and one above it, both published, and a deleted one that has left rows and objects behind. */
async function setTheScene(stores: Stores): Promise<Scene> {
  const organisationId = await addOrganisation(stores.db);
  const live = await addStack(stores, organisationId, 'live');
  const above = await addStack(stores, organisationId, 'above', { dependsOn: [live.stackId] });
  const edge = { from_stack_id: above.stackId, to_stack_id: live.stackId, from_name: 'above', generation: 1 };
  await stores.db.insertInto('edges').values(edge).execute();
  const deleted = await addStack(stores, organisationId, 'deleted');
  await markDeleted(stores.db, deleted.stackId);
  for (const stack of [live, deleted]) await putInIndex(stores.explore, stack);
  return { live, deleted };
}

/** All that handlers may change, without the times at which they did. */
async function everything({ db, explore, objects }: Stores): Promise<object> {
  return {
    stacks: await db
      .selectFrom('stacks')
      .select(['id', 'published_generation', 'resolved_generation'])
      .orderBy('id')
      .execute(),
    edges: await db.selectFrom('edges').selectAll().orderBy('from_stack_id').execute(),
    audits: await db.selectFrom('seat_audits').select(['organisation_id', 'seats_taken']).execute(),
    triggered: await db.selectFrom('triggered_runs').select(['stack_id', 'upstream_stack_id']).execute(),
    resources: await explore
      .selectFrom('resources')
      .selectAll()
      .orderBy('stack_id')
      .orderBy('path')
      .execute(),
    projections: await explore
      .selectFrom('projections')
      .select(['stack_id', 'generation'])
      .orderBy('stack_id')
      .execute(),
    findings: await explore.selectFrom('findings').selectAll().orderBy('stack_id').orderBy('rule').execute(),
    diagnostics: await explore.selectFrom('diagnostics').select(['organisation_id', 'generation']).execute(),
    keys: await keysBelow(objects, 'stacks/'),
  };
}

/** Services whose store of the name fails every call, as long as it is told to. */
function failing(services: HandlerServices, store: Exclude<Store, 'objects'>) {
  const state = { fails: true };
  const broken = <Database extends object>(database: Database): Database =>
    new Proxy(database, {
      get(target, name) {
        if (name === 'transaction' && state.fails) throw new Error('the database does not answer');
        const value = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  const { primary, replica, explore } = services;
  const replaced =
    store === 'platform'
      ? { primary: broken(primary), replica: broken(replica) }
      : { explore: broken(explore) };
  return { state, services: { ...services, ...replaced } };
}

test('every task type has its contract', () => {
  expect(Object.keys(CONTRACTS).sort()).toEqual(Object.keys(tasks).sort());
});

describe.for(contracts)('%s', ([, { type, payload, uses, stopAt, badPayloads }]) => {
  const run = (services: HandlerServices, scene: Scene, options: { signal?: AbortSignal } = {}) =>
    runTask(createHandlers(services), type, payload(scene), options);

  test('changes something, and run again leaves the same', async ({ stores, services }) => {
    const scene = await setTheScene(stores);
    const before = await everything(stores);
    expect(await run(services, scene)).toMatchObject({ result: 'done', outcome: 'success' });
    const once = await everything(stores);
    expect(once).not.toEqual(before);
    expect(await run(services, scene)).toMatchObject({ result: 'done', outcome: 'success' });
    expect(await everything(stores)).toEqual(once);
  });

  test('run several times at once leaves what one run leaves', async ({ stores, services }) => {
    const scene = await setTheScene(stores);
    const runs = await Promise.all(Array.from({ length: 4 }, () => run(services, scene)));
    expect(runs.map(({ result }) => result)).toEqual(['done', 'done', 'done', 'done']);
    const atOnce = await everything(stores);
    await run(services, scene);
    expect(await everything(stores)).toEqual(atOnce);
  });

  test('stopped half-way it ends with the reason, and the next run finishes', async ({
    stores,
    services,
    objectStoreSettings,
  }) => {
    const scene = await setTheScene(stores);
    const stop = new AbortController();
    const stopped = async (runServices: HandlerServices, isHalfWay: Promise<unknown>) => {
      const running = run(runServices, scene, { signal: stop.signal });
      await Promise.race([isHalfWay, running]);
      stop.abort();
      expect(await running).toMatchObject({
        result: 'error',
        outcome: 'cancelled',
        error: { code: 'SHUTDOWN' },
      });
    };
    if (stopAt === 'objects') {
      let reached = () => {};
      const isHalfWay = new Promise<void>((resolve) => {
        reached = resolve;
      });
      const hangs: Fault = () => {
        reached();
        return 'hang';
      };
      const { objects } = await startFaultyStore(objectStoreSettings, hangs);
      await stopped({ ...services, objects }, isHalfWay);
    } else {
      const { table } = stopAt;
      const database = stopAt.store === 'platform' ? stores.db : stores.explore;
      await whileLocked(
        database as Stores['db'],
        (holder) => sql`LOCK TABLE ${sql.table(table)} IN ACCESS EXCLUSIVE MODE`.execute(holder),
        () => stopped(services, untilWaiting(database as Stores['db'], 1)),
      );
    }
    expect(await run(services, scene)).toMatchObject({ result: 'done' });
    const finished = await everything(stores);
    await run(services, scene);
    expect(await everything(stores)).toEqual(finished);
  });

  test.for([...uses])(
    'fails when %s fails, and succeeds when it is back',
    async (store, { stores, services, objectStoreSettings }) => {
      const scene = await setTheScene(stores);
      const before = await everything(stores);
      if (store === 'objects') {
        const faulty = await startFaultyStore(objectStoreSettings, () => failure(403, 'AccessDenied'));
        const through = { ...services, objects: faulty.objects };
        expect(await run(through, scene)).toMatchObject({ result: 'error', outcome: 'failure', dead: false });
        expect(await everything(stores)).toEqual(before);
        faulty.fault = () => undefined;
        expect(await run(through, scene)).toMatchObject({ result: 'done' });
      } else {
        const { state, services: through } = failing(services, store);
        expect(await run(through, scene)).toMatchObject({ result: 'error', outcome: 'failure', dead: false });
        expect(await everything(stores)).toEqual(before);
        state.fails = false;
        expect(await run(through, scene)).toMatchObject({ result: 'done' });
      }
      expect(await everything(stores)).not.toEqual(before);
    },
  );

  test('a payload it cannot use is refused at the enqueue', async ({ platform }) => {
    for (const bad of badPayloads) {
      await expect(enqueue(platform, type, bad as never)).rejects.toMatchObject({ code: 'PAYLOAD_INVALID' });
    }
  });

  test('and one that came into the table all the same becomes a dead letter, without a run', async ({
    stores,
    services,
  }) => {
    const scene = await setTheScene(stores);
    const before = await everything(stores);
    await enqueue(stores.db, type, payload(scene), { unique: false });
    const [bad] = badPayloads.slice(-1);
    await sql`UPDATE taskq.async_tasks SET payload = ${JSON.stringify(bad)}::jsonb`.execute(stores.db);
    const runs = await drain({ db: stores.db, handlers: createHandlers(services) });
    expect(runs).toMatchObject([{ type, outcome: 'failure', dead: true }]);
    expect(await everything(stores)).toEqual(before);
  });
});
