import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Skips the test, and says so, where promtool is not installed.
 * With `TASKQ_REQUIRE_SYSTEM_TOOLS=1`, as in CI, the test fails instead: a skipped promise is not a kept one.
 */
export async function requirePromtool(test: { skip(reason: string): never }): Promise<void> {
  if (await hasPromtool()) return;
  const reason = 'promtool is not installed (apt-get install --no-install-recommends prometheus)';
  if (process.env['TASKQ_REQUIRE_SYSTEM_TOOLS'] === '1') throw new Error(reason);
  console.warn(`SKIPPED: ${reason}`);
  test.skip(reason);
}

async function hasPromtool(): Promise<boolean> {
  return run('promtool', ['--version']).then(
    () => true,
    () => false,
  );
}

/** Runs promtool to its end. Rejects with what it printed unless it is content. */
export async function promtool(...args: string[]): Promise<string> {
  try {
    const { stdout } = await run('promtool', args, { maxBuffer: 64 * 1_048_576 });
    return stdout;
  } catch (error) {
    const { stdout, stderr, message } = error as Error & { stdout: string; stderr: string };
    throw new Error(
      `promtool ${args.join(' ')}\n${stdout}${stderr}${stdout === '' && stderr === '' ? message : ''}`,
    );
  }
}

/** One series of a unit test: its selector, and its values in the notation of promtool. */
export interface Series {
  readonly series: string;
  readonly values: string;
}

export interface ExpressionTest {
  readonly expr: string;
  readonly eval_time: string;
  readonly exp_samples: readonly { readonly labels: string; readonly value: number }[];
}

export interface RuleTest {
  readonly name?: string;
  readonly interval: string;
  readonly input_series: readonly Series[];
  readonly promql_expr_test?: readonly ExpressionTest[];
  readonly alert_rule_test?: readonly object[];
}

/** `promtool test rules`. The rules are evaluated once a minute. */
export async function testRules(ruleFiles: readonly string[], tests: readonly RuleTest[]): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), 'taskq-promtool-'));
  try {
    const file = path.join(directory, 'test.yml');
    // JSON is YAML.
    await writeFile(file, JSON.stringify({ rule_files: ruleFiles, evaluation_interval: '1m', tests }));
    await promtool('test', 'rules', file);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
