import { beforeAll } from 'vitest';
import { build, start, taskq } from '../support/cli.ts';
import { auditRows, insertDead } from '../support/dead.ts';
import { describe, expect, test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

beforeAll(build);

const TOKEN = 'a-token-for-the-command-line';
const API = 'api/v1/admin/async';

describe('taskq dashboard', () => {
  test('does not start without a token, and says how it does', async ({ database }) => {
    const { code, stderr } = await taskq(['dashboard'], { env: { DATABASE_URL: database.url } });
    expect(code).toBe(2);
    expect(stderr).toContain('TASKQ_ADMIN_TOKEN');
    const short = await taskq(['dashboard'], {
      env: { DATABASE_URL: database.url, TASKQ_ADMIN_TOKEN: 'short' },
    });
    expect(short.code).toBe(2);
    expect(short.stderr).not.toContain("'short'");
  });

  test('serves the page and the API on this machine until SIGTERM', async ({ database, db }) => {
    const [id] = await insertDead(db, 1);
    const serving = start(['dashboard', '--admin-port', '0'], {
      env: { DATABASE_URL: database.url, TASKQ_ADMIN_TOKEN: TOKEN },
    });
    await serving.until(/dashboard: http/);
    const [, url] = /dashboard: (http:\/\/127\.0\.0\.1:\d+\/)/.exec(serving.stdout()) ?? [];
    // Its output is no terminal: no link that logs in stands there.
    expect(serving.stdout()).not.toContain('once=');
    const page = await fetch(String(url));
    expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
    const headers = { authorization: `Bearer ${TOKEN}` };
    const replayed = await fetch(`${url}${API}/tasks/${id}/replay`, { method: 'POST', headers });
    expect(await replayed.json()).toEqual({ id, status: 'replayed' });
    expect(await auditRows(db)).toMatchObject([{ actor: 'api:token', action: 'dead.replay' }]);
    // A stream that is open keeps nothing alive.
    const stream = await fetch(`${url}${API}/events`, { headers });
    serving.child.kill('SIGTERM');
    expect(await serving.ended()).toMatchObject({ code: 0 });
    await stream.text().catch(() => undefined);
  });

  test('a port that is taken is a misuse', async ({ database }) => {
    const env = { DATABASE_URL: database.url, TASKQ_ADMIN_TOKEN: TOKEN };
    const first = start(['dashboard', '--admin-port', '0'], { env });
    await first.until(/dashboard: http/);
    const [, port] = /:(\d+)\//.exec(first.stdout()) ?? [];
    const second = await taskq(['dashboard', '--admin-port', String(port)], { env });
    expect([second.code, second.stderr]).toEqual([2, expect.stringContaining('cannot serve on 127.0.0.1')]);
    first.child.kill('SIGTERM');
    await first.ended();
  });
});

describe('taskq work --roles', () => {
  test('admin is served beside a replica, which does not have it unless asked', async ({ database }) => {
    const env = { DATABASE_URL: database.url, TASKQ_ADMIN_TOKEN: TOKEN };
    const worker = start(
      ['work', 'handlers.ts', '--roles', 'processor,admin', '--admin-port', '0', '--concurrency', '3'],
      { env },
    );
    await worker.until(/"event":"started"/);
    const [, url] = /"url":"(http:\/\/127\.0\.0\.1:\d+\/)"/.exec(worker.stdout()) ?? [];
    const headers = { authorization: `Bearer ${TOKEN}` };
    // The first report may still be on its way.
    const [replica] = await waitFor(async () => {
      const answer = await fetch(`${url}${API}/replicas`, { headers });
      const { replicas } = (await answer.json()) as { replicas: unknown[] };
      return replicas.length > 0 && replicas;
    });
    expect(replica).toMatchObject({
      slots: 3,
      pid: worker.child.pid,
      roles: ['processor'],
      isAlive: true,
    });
    worker.child.kill('SIGTERM');
    expect(await worker.ended()).toMatchObject({ code: 0 });
  });

  test('admin alone needs no handlers', async ({ database }) => {
    const env = { DATABASE_URL: database.url, TASKQ_ADMIN_TOKEN: TOKEN };
    const alone = start(['work', '--roles', 'admin', '--admin-port', '0'], { env });
    await alone.until(/"event":"admin_served"/);
    alone.child.kill('SIGTERM');
    expect(await alone.ended()).toMatchObject({ code: 0 });
    const without = await taskq(['work', 'handlers.ts', '--roles', 'processor,admin'], {
      env: { DATABASE_URL: database.url },
    });
    expect([without.code, without.stderr]).toEqual([2, expect.stringContaining('TASKQ_ADMIN_TOKEN')]);
  });
});
