import { expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { type CronEntries, type CronEntry, createCron, defineTask } from '../../src/index.ts';

const account = defineTask({
  type: 'account',
  payload: z.object({ id: z.string(), days: z.number().default(7) }),
  ceiling: '1m',
});
const sweep = defineTask({
  type: 'sweep',
  payload: z.object({ limit: z.number().optional() }),
  ceiling: '1m',
});
const name = defineTask({ type: 'name', payload: z.string(), ceiling: '1m' });
const tasks = {
  account: { definition: account, revision: 1 },
  sweep: { definition: sweep, revision: 1 },
  name: { definition: name, revision: 1 },
};
const defineCron = (entries: readonly CronEntry<typeof tasks>[]) => createCron(tasks, entries);
const schedule = '@every 5m';

test('an entry takes the payload of its task, which may be left out where {} fits', () => {
  expectTypeOf(defineCron([])).toEqualTypeOf<CronEntries>();
  defineCron([
    { schedule, task: 'account', payload: { id: 'a' } },
    { schedule, task: 'name', payload: 'a' },
    { schedule, task: 'sweep' },
    { schedule, task: 'sweep', name: 'limited', payload: { limit: 3 } },
  ]);
  // @ts-expect-error the account is missing
  defineCron([{ schedule, task: 'account', payload: {} }]);
  // @ts-expect-error so is the payload
  defineCron([{ schedule, task: 'account' }]);
  // @ts-expect-error {} is no text
  defineCron([{ schedule, task: 'name' }]);
  // @ts-expect-error the payload of another task
  defineCron([{ schedule, task: 'sweep', payload: { id: 'a' } }]);
  // @ts-expect-error no such task
  defineCron([{ schedule, task: 'sweeep' }]);
});

test('an entry takes the options of an enqueue, and its own', () => {
  defineCron([
    {
      ...{ schedule, task: 'account', payload: { id: 'a' }, timeZone: 'Europe/Berlin', queue: 'low' },
      ...{ maxAttempts: 3, timeout: '10s', retention: '24h', wake: 'poll', headers: { origin: 'cron' } },
      unique: { by: ['id'], while: 'live' },
      missed: { all: 3 },
    },
    { schedule, task: 'sweep', overlap: 'skip', missed: 'once' },
  ]);
  // @ts-expect-error no such field of the payload
  defineCron([{ schedule, task: 'account', payload: { id: 'a' }, unique: { by: ['ids'], while: 'live' } }]);
  // @ts-expect-error when it is due is what the schedule says
  defineCron([{ schedule, task: 'sweep', delay: '5m' }]);
  // @ts-expect-error no schedule
  defineCron([{ task: 'sweep' }]);
  // @ts-expect-error no such policy
  defineCron([{ schedule, task: 'sweep', overlap: 'wait' }]);
  // @ts-expect-error how many
  defineCron([{ schedule, task: 'sweep', missed: 'all' }]);
});
