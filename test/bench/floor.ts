import pg from 'pg';

// The floor: what plain pg needs for the same work in its barest form. Named statements, one table with the
// columns the work needs and indexes like taskq's, no types, no checks, no deadline, no history, no wake.

/** The storage settings are taskq's own, so that the ratio is not one of fillfactor or autovacuum. */
export async function createFloor(client: pg.Client): Promise<void> {
  await client.query(`
    create table floor_tasks (
      id bigint generated always as identity primary key,
      payload jsonb not null,
      run_at timestamptz not null default now(),
      lease_token uuid,
      lease_expires_at timestamptz
    ) with (
      fillfactor = 70,
      autovacuum_vacuum_scale_factor = 0.0,
      autovacuum_vacuum_threshold = 2000,
      autovacuum_vacuum_cost_delay = 0,
      autovacuum_vacuum_insert_scale_factor = 0.0,
      autovacuum_vacuum_insert_threshold = 20000,
      autovacuum_analyze_scale_factor = 0.0,
      autovacuum_analyze_threshold = 5000
    )`);
  await client.query('create index floor_tasks_due on floor_tasks (run_at, id)');
}

/** One connection of the floor. Each method is one commit, unless it stands between begin and commit. */
export class FloorClient {
  readonly client: pg.Client;

  constructor(connection: pg.ClientConfig) {
    this.client = new pg.Client(connection);
  }

  /** Connects and prepares, so that neither is measured. */
  async open(): Promise<this> {
    await this.client.connect();
    await this.insert('{}');
    const claimed = await this.claim();
    if (claimed !== undefined) await this.delete(claimed);
    return this;
  }

  begin(): Promise<unknown> {
    return this.client.query('begin');
  }

  commit(): Promise<unknown> {
    return this.client.query('commit');
  }

  insert(payloadText: string): Promise<unknown> {
    return this.client.query({
      name: 'insert',
      text: 'insert into floor_tasks (payload) values ($1::text::jsonb) returning id::text',
      values: [payloadText],
    });
  }

  /** The insert with a wake in the same statement. */
  insertAndNotify(payloadText: string): Promise<unknown> {
    return this.client.query({
      name: 'insert_and_notify',
      text: `insert into floor_tasks (payload) values ($1::text::jsonb)
        returning id::text, pg_notify('floor', '')::text`,
      values: [payloadText],
    });
  }

  insertMany(payloadTexts: readonly string[]): Promise<unknown> {
    return this.client.query({
      name: 'insert_many',
      text: `insert into floor_tasks (payload)
        select p::jsonb from unnest($1::text[]) with ordinality as given(p, position) order by position
        returning id::text`,
      values: [payloadTexts],
    });
  }

  async claim(): Promise<Claimed | undefined> {
    const { rows } = await this.client.query<Claimed>({
      name: 'claim',
      text: `update floor_tasks set lease_token = gen_random_uuid(), lease_expires_at = now() + interval '1 minute'
        where id = (
          select id from floor_tasks
          where run_at <= now() and (lease_expires_at > now()) is not true
          order by run_at, id limit 1 for update skip locked)
        returning id::text, lease_token::text as token, payload::text`,
    });
    return rows[0];
  }

  async delete({ id, token }: Claimed): Promise<void> {
    const { rowCount } = await this.client.query({
      name: 'delete',
      text: 'delete from floor_tasks where id = $1 and lease_token = $2',
      values: [id, token],
    });
    if (rowCount !== 1) throw new Error(`the floor lost task ${id}`);
  }

  close(): Promise<void> {
    return this.client.end();
  }
}

interface Claimed {
  readonly id: string;
  readonly token: string;
  readonly payload: string;
}

/** Opens connections of the floor for as long as `use` runs, on an empty table. */
export async function withFloor<Answer>(
  connection: pg.ClientConfig,
  connections: number,
  use: (clients: readonly FloorClient[]) => Promise<Answer>,
): Promise<Answer> {
  const clients = await Promise.all(
    Array.from({ length: connections }, () => new FloorClient(connection).open()),
  );
  try {
    await (clients[0] as FloorClient).client.query('truncate floor_tasks');
    return await use(clients);
  } finally {
    await Promise.all(clients.map((client) => client.close()));
  }
}
