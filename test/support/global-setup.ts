import type { TestProject } from 'vitest/node';
import { administer, DATABASE_PREFIX, databaseName, urlOf } from './databases.ts';
import { migrateTemplate } from './schema.ts';
import { startTestServer } from './server.ts';

declare module 'vitest' {
  interface ProvidedContext {
    serverUrl: string;
    templateName: string;
  }
}

/** One server for the run, and on it one migrated database that every test's own is copied from. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startTestServer();
  const before = new Set(await testDatabases(server.url));
  const templateName = databaseName('template');
  await administer(server.url, `CREATE DATABASE ${templateName}`);
  await migrateTemplate(urlOf(server.url, templateName));
  // A stray connection to the template would make every CREATE DATABASE from it fail.
  await administer(server.url, `ALTER DATABASE ${templateName} WITH ALLOW_CONNECTIONS false`);
  project.provide('serverUrl', server.url);
  project.provide('templateName', templateName);
  return async () => {
    await administer(server.url, `DROP DATABASE ${templateName}`);
    const kept = (await testDatabases(server.url)).filter((name) => !before.has(name));
    const where = await server.stop(kept);
    if (kept.length > 0) console.log(`Databases of failed tests, kept ${where}:\n  ${kept.join('\n  ')}`);
  };
}

async function testDatabases(serverUrl: string): Promise<string[]> {
  const pattern = `${DATABASE_PREFIX.replaceAll('_', '\\_')}%`;
  const { rows } = await administer(
    serverUrl,
    `SELECT datname FROM pg_database WHERE datname LIKE '${pattern}' ORDER BY datname`,
  );
  return rows.map((row) => row.datname as string);
}
