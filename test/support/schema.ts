import { migrateUp } from '../../src/statements/migrate.ts';

/** The schema the queue's tables live in, in every test database. */
export const TEST_SCHEMA = 'taskq';

export async function migrateTemplate(url: string): Promise<void> {
  await migrateUp(url, { schema: TEST_SCHEMA });
}
