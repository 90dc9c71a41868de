import pg from 'pg';
import { createEnqueuer, dequeueUnleased, type QueryValue, queryExecutor } from '../../src/index.ts';
import { testTasks } from '../support/tasks.ts';
import { expect, onTestFinished, test } from '../support/test.ts';

const { enqueue, enqueueMany } = createEnqueuer(testTasks);

test("what runs in a caller's transaction has plain values, each in one place and in order", async ({
  database,
}) => {
  const client = new pg.Client(database.connection);
  await client.connect();
  client.on('error', () => {});
  onTestFinished(() => client.end().catch(() => {}));
  const sent: { text: string; values: readonly QueryValue[] }[] = [];
  const tx = queryExecutor(async (text, values) => {
    sent.push({ text, values });
    return (await client.query(text, [...values])).rows;
  });

  const { id } = await enqueue(tx, 'plain', { n: 1 }, { headers: { trace: 'a' } });
  await enqueue(tx, 'plain', {}, { delay: '1m', timeout: '10s', retention: '1h' });
  await enqueue(tx, 'plain', {}, { wake: 'poll' });
  await enqueue(tx, 'plain', {}, { wake: 'poll', retention: '1h' });
  await enqueueMany(tx, 'plain', [{}, {}], { wake: 'poll' });
  await enqueue(tx, 'plain', {}, { runAt: '2027-01-31T09:00:00Z' });
  await enqueueMany(tx, 'plain', [{}, {}]);
  await enqueue(tx, 'plain', { n: 2 }, { unique: { while: 'live' } });
  expect(await dequeueUnleased(tx, id)).toBe(true);

  expect(sent).toHaveLength(9);
  for (const { text, values } of sent) {
    // A library that marks parameters by ? counts on this.
    const places = [...text.matchAll(/\$(\d+)/g)].map(([, place]) => Number(place));
    expect(places).toEqual(values.map((_, at) => at + 1));
    expect(text).not.toContain('?');
    expect(values.filter((value) => value !== null && !/^(string|number)$/.test(typeof value))).toEqual([]);
  }
});
