import { sql } from 'kysely';
import { createAdmin } from '../../src/admin/index.ts';
import { socialActions } from '../../src/social/admin.ts';
import { expect, onTestFinished, test } from './support/social.ts';

const TOKEN = 'a-token-of-the-test';

test('a sweep is asked for by the admin API, under the name of who did it, and of no prefix that is curated', async ({
  world,
}) => {
  const admin = await createAdmin({ database: world.databaseUrl, token: TOKEN, actions: socialActions });
  onTestFinished(() => admin.close());
  const sweep = (query: string) =>
    admin.fetch(
      new Request(`http://localhost/api/v1/admin/async/s3-orphan-sweep${query}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${TOKEN}` },
      }),
    );

  const asked = await sweep('?prefix=avatars/');
  expect(asked.status).toBe(200);
  const [task] = await world.waiting('cleanup:s3_orphan_sweep');
  expect(await asked.json()).toEqual({ taskId: task?.id, status: 'enqueued' });
  expect(task?.payload).toMatchObject({ prefix: 'avatars/' });
  const { rows } = await sql`select actor, action from taskq.async_audit`.execute(world.db);
  expect(rows).toMatchObject([{ actor: expect.stringMatching(/^api:/), action: 'task.enqueue' }]);

  for (const query of ['?prefix=stamps/', '?prefix=avatars', '?prefix=', '?prefix=avatars/a']) {
    expect((await sweep(query)).status).toBe(404);
  }
  expect((await sweep('')).status).toBe(400);
  expect(await world.waiting()).toHaveLength(1);
});
