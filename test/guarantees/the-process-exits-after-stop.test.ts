import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import { test } from '../support/replica.ts';
import { insertRow, lapseLease, rowOf } from '../support/rows.ts';

const SCRIPT = fileURLToPath(new URL('fixtures/replica-process.ts', import.meta.url));

test('a process that was idle exits by itself after SIGTERM', async ({ database }) => {
  const { child, kinds, seen } = startProcess(database.url);
  await seen('listener_connected');

  expect(await terminate(child)).toEqual([0, null]);
  expect(kinds.at(-1)).toBe('stopped');
});

test('SIGTERM releases what the process runs, another replica takes it over, and the process exits', async ({
  database,
  db,
  startReplica,
}) => {
  const id = await insertRow(db);
  const { child, seen } = startProcess(database.url);
  await seen('claimed');
  const other = await startReplica({ pollInterval: 100 });

  const exited = terminate(child);

  expect(await other.events.first('settled')).toMatchObject({ outcome: 'success', task: { id, attempt: 2 } });
  expect(await exited).toEqual([0, null]);
});

test('a handler that ignores the stop does not keep the process alive, and its row waits for the lease', async ({
  database,
  db,
}) => {
  const id = await insertRow(db, { type: 'brief' });
  const { child, kinds, seen } = startProcess(database.url);
  await seen('claimed');
  const held = await rowOf(db, id);

  expect(await terminate(child)).toEqual([0, null]);
  expect(kinds).toContain('handler_abandoned');
  expect(await rowOf(db, id)).toEqual(held);
});

test('a replica killed by SIGKILL leaves its row leased, and another runs it once the lease has lapsed', async ({
  database,
  db,
  startReplica,
}) => {
  const id = await insertRow(db);
  const { child, seen } = startProcess(database.url);
  await seen('claimed');
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 1, lease_token: expect.any(String) });
  const other = await startReplica({ pollInterval: 100 });

  await other.events.next('discovered');
  expect(other.events.of('claimed')).toEqual([]);
  await lapseLease(db, id);

  expect(await other.events.first('settled')).toMatchObject({ outcome: 'success', task: { id, attempt: 2 } });
});

function startProcess(url: string) {
  const child = spawn(process.execPath, ['--import', 'jiti/register', SCRIPT, url], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const kinds: string[] = [];
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (kind) => kinds.push(kind));
  const seen = async (kind: string) => {
    while (!kinds.includes(kind)) {
      if (child.exitCode !== null)
        throw new Error(`the process exited with ${child.exitCode} before '${kind}'`);
      await Promise.race([once(lines, 'line'), once(child, 'exit')]);
    }
  };
  return { child, kinds, seen };
}

/** The exit code and the signal that ended it: none, when it ended by itself. */
async function terminate(child: ChildProcess): Promise<unknown[]> {
  child.kill('SIGTERM');
  return once(child, 'close');
}
