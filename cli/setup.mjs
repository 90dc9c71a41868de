// Runs before `npm start` and `npm test`: makes a fresh clone ready, and does nothing when it already is.
// Plain JavaScript without dependencies, since nothing is installed or built before it.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const NODE_REQUIRED = [20, 19];
const BUILD = path.join(ROOT, 'dist');
const STAMP = path.join(BUILD, '.stamp');
const LOCK = path.join(ROOT, '.taskq', 'setup.lock');
const PROGRAM = path.join('cli', 'main.js');
/** Runs in the browser as it is written: the compiler neither reads nor makes it. */
const DASHBOARD = path.join('src', 'admin', 'dashboard');
/** What the build is made from. */
const SOURCES = ['src', 'cli', 'generated', 'tsconfig.json', 'tsconfig.build.json', 'package-lock.json'];
const LOCK_POLL_MS = 200;
/** A lock of another machine's process cannot be asked whether its owner lives; no setup takes that long. */
const FOREIGN_LOCK_AGE_MS = 15 * 60_000;

try {
  checkNode();
  if (!isReady()) await withLock(makeReady);
} catch (error) {
  console.error(`setup: ${explain(error)}`);
  process.exitCode = 1;
}

function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  const [majorRequired, minorRequired] = NODE_REQUIRED;
  if (major > majorRequired || (major === majorRequired && minor >= minorRequired)) return;
  throw new Error(`Node ${NODE_REQUIRED.join('.')} or newer is needed, and this is ${process.versions.node}`);
}

function isReady() {
  return isInstalled() && isBuilt(sourcesHash());
}

function makeReady() {
  // Another setup may have done it while this one waited for the lock.
  if (!isInstalled()) install();
  const hash = sourcesHash();
  if (!isBuilt(hash)) build(hash);
}

/** Whether every package of the lock file is installed in its version; optional ones may be absent. */
function isInstalled() {
  const wanted = packagesOf('package-lock.json');
  const installed = packagesOf('node_modules/.package-lock.json');
  if (wanted === undefined) throw new Error('package-lock.json is missing or unreadable');
  if (installed === undefined) return false;
  return Object.entries(wanted).every(([place, { version, optional, devOptional, link }]) => {
    if (place === '' || link) return true;
    const found = installed[place];
    return found === undefined ? optional === true || devOptional === true : found.version === version;
  });
}

function packagesOf(name) {
  try {
    return JSON.parse(fs.readFileSync(path.join(ROOT, name), 'utf8')).packages;
  } catch {
    return undefined;
  }
}

function install() {
  console.log('setup: installing the dependencies with npm ci (about a minute)');
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  const { status, error } = spawnSync(npm, ['ci', '--include=dev', '--no-audit', '--no-fund'], {
    cwd: ROOT,
    stdio: 'inherit',
    shell: process.platform === 'win32',
  });
  if (error !== undefined) throw new Error(`npm could not be run: ${error.message}`);
  if (status !== 0) throw new Error('npm ci failed (its own message stands above)');
}

/** Of names and contents, not of times: git gives every file of a checkout a time of its own. */
function sourcesHash() {
  const hash = createHash('sha256').update(process.versions.modules);
  for (const name of SOURCES.flatMap(filesBelow)) {
    hash.update(`\0${name}\0`).update(fs.readFileSync(path.join(ROOT, name)));
  }
  return hash.digest('hex');
}

function filesBelow(name) {
  const found = fs.statSync(path.join(ROOT, name), { throwIfNoEntry: false });
  if (found === undefined) return [];
  if (!found.isDirectory()) return [name];
  const children = fs.readdirSync(path.join(ROOT, name)).sort();
  return children.flatMap((child) => filesBelow(path.join(name, child)));
}

function isBuilt(hash) {
  try {
    return fs.readFileSync(STAMP, 'utf8') === hash;
  } catch {
    return false;
  }
}

// The compiler works beside the build and the result is moved into place: a failed or killed build leaves
// the old one whole, and files of deleted sources do not live on.
function build(hash) {
  console.log('setup: building');
  const fresh = path.join(ROOT, `dist.${process.pid}`);
  const previous = `${fresh}.previous`;
  try {
    const compiler = path.join(ROOT, 'node_modules/typescript/bin/tsc');
    const { status } = spawnSync(
      process.execPath,
      [compiler, '-p', 'tsconfig.build.json', '--outDir', fresh, '--noEmitOnError'],
      { cwd: ROOT, stdio: 'inherit' },
    );
    if (status !== 0) throw new Error('the build failed (the compiler says why above)');
    fs.cpSync(path.join(ROOT, DASHBOARD), path.join(fresh, DASHBOARD), {
      recursive: true,
      filter: (name) => !/\.d\.ts$|tsconfig\.json$|[\\/]vendor$/.test(name),
    });
    const program = path.join(fresh, PROGRAM);
    if (fs.existsSync(program)) fs.chmodSync(program, 0o755);
    fs.writeFileSync(path.join(fresh, path.basename(STAMP)), hash);
    if (fs.existsSync(BUILD)) fs.renameSync(BUILD, previous);
    fs.renameSync(fresh, BUILD);
  } finally {
    fs.rmSync(fresh, { recursive: true, force: true });
    fs.rmSync(previous, { recursive: true, force: true });
  }
}

/** One setup of this folder at a time; the lock of a process that died is taken over. */
async function withLock(work) {
  fs.mkdirSync(path.dirname(LOCK), { recursive: true });
  const mine = JSON.stringify({ host: hostname(), pid: process.pid });
  for (let said = false; !tryLock(mine); await delay(LOCK_POLL_MS)) {
    const owner = readLock();
    if (owner === undefined) continue;
    if (isGone(owner)) takeAway(owner);
    else if (!said) console.log(`setup: waiting for another setup (process ${owner.pid})`);
    said = true;
  }
  // Ctrl-C ends npm or the compiler and this process with it: the lock must not outlive them.
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
  process.once('exit', () => fs.rmSync(LOCK, { force: true }));
  work();
}

function tryLock(mine) {
  try {
    fs.writeFileSync(LOCK, mine, { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  }
}

function readLock() {
  try {
    const text = fs.readFileSync(LOCK, 'utf8');
    return { ...JSON.parse(text), text, ageMs: Date.now() - fs.statSync(LOCK).mtimeMs };
  } catch (error) {
    // Gone again, or not written yet; one that stays empty was left by a full disk.
    if (error instanceof SyntaxError) return { host: '', pid: 0, text: '', ageMs: Date.now() - lockTime() };
    return undefined;
  }
}

function lockTime() {
  return fs.statSync(LOCK, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
}

function isGone({ host, pid, ageMs }) {
  if (host !== hostname()) return ageMs > FOREIGN_LOCK_AGE_MS;
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error.code === 'ESRCH';
  }
}

// Two that wait may see the same dead owner, and the slower one must not remove the lock of the faster:
// what it took away is looked at, and put back when it was another's.
function takeAway(owner) {
  const aside = `${LOCK}.${process.pid}`;
  try {
    fs.renameSync(LOCK, aside);
    if (fs.readFileSync(aside, 'utf8') !== owner.text) fs.linkSync(aside, LOCK);
  } catch (error) {
    if (error.code !== 'ENOENT' && error.code !== 'EEXIST') throw error;
  } finally {
    fs.rmSync(aside, { force: true });
  }
}

function explain(error) {
  if (error.code !== 'EACCES' && error.code !== 'EPERM') return error.message;
  return `${error.message}; the files of an earlier run belong to another user (chown them, or run as that user)`;
}
