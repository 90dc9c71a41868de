import type { DoctorOptions, Finding } from '../../src/operator.ts';
import { doctor } from '../../src/operator.ts';
import { TEST_SCHEMA } from './schema.ts';
import { testTasks } from './tasks.ts';

/** What the doctor finds, check by check; by default with the tasks of the tests. */
export async function findingsOf(options: DoctorOptions): Promise<Readonly<Record<string, Finding>>> {
  const { findings } = await doctor({ schema: TEST_SCHEMA, tasks: testTasks, ...options });
  return Object.fromEntries(findings.map((finding) => [finding.id, finding]));
}

/** One check's finding. */
export async function findingOf(id: string, options: DoctorOptions): Promise<Finding> {
  const finding = (await findingsOf({ checks: [id], ...options }))[id];
  if (finding === undefined) throw new Error(`there is no check ${id}`);
  return finding;
}

/** The SQL among a finding's remedies, for a test that follows them. */
export const sqlOf = ({ remedies }: Finding): string[] =>
  remedies.filter((remedy) =>
    /^(ALTER|CREATE|DROP|GRANT|REINDEX|VACUUM|ANALYZE|ROLLBACK|SELECT)\b.*;$/.test(remedy),
  );
