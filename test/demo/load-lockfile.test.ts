import { readFile } from 'node:fs/promises';
import { loadLockfile, parseLockfile } from '../../src/demo/load-lockfile.ts';
import { countTasks } from './support/evidence.ts';
import { describe, expect, keysBelow, noSignal, test } from './support/platform.ts';

const SMALL = {
  name: 'shop',
  lockfileVersion: 3,
  packages: {
    '': {
      name: 'shop',
      version: '1.0.0',
      dependencies: { a: '^1.0.0' },
      devDependencies: { '@scope/b': '*' },
    },
    'node_modules/a': {
      version: '1.2.3',
      license: 'MIT',
      bin: { a: 'a.js' },
      engines: { node: '>=18' },
      dependencies: { b: '^1.0.0', c: '^2.0.0' },
    },
    'node_modules/a/node_modules/c': { version: '2.0.0', dependencies: { b: '*' } },
    'node_modules/b': { version: '1.0.0', peerDependencies: { c: '*', 'not-installed': '*' } },
    'node_modules/c': { version: '1.0.0', optionalDependencies: { 'other-platform': '*' } },
    'node_modules/@scope/b': { version: '1.0.0', dependencies: { '@scope/b': '*' } },
    'node_modules/linked': { link: true },
  },
};

function repositoryLockfile(): Promise<string> {
  return readFile(new URL('../../package-lock.json', import.meta.url), 'utf8');
}

describe('parseLockfile', () => {
  test("resolves dependencies as Node does: in a package's own folder, then in those above it", () => {
    const { name, packages } = parseLockfile(JSON.stringify(SMALL));
    const graph = Object.fromEntries(packages.map((each) => [each.name, each.dependsOn]));
    expect(name).toBe('shop');
    expect(graph).toEqual({
      shop: ['a', '@scope/b'],
      a: ['b', 'a > c'],
      'a > c': ['b'],
      b: ['c'],
      c: [],
      '@scope/b': ['@scope/b'],
    });
  });

  test('keeps what the lock file says of a package as facts', () => {
    const { packages } = parseLockfile(JSON.stringify(SMALL));
    expect(packages.find((each) => each.name === 'a')?.facts).toEqual([
      ['package', 'a'],
      ['version', '1.2.3'],
      ['license', 'MIT'],
      ['engines/node', '>=18'],
      ['bin/a', 'a.js'],
      ['dependencies/b', '^1.0.0'],
      ['dependencies/c', '^2.0.0'],
    ]);
  });

  test('refuses a lock file of another version', () => {
    expect(() => parseLockfile(JSON.stringify({ ...SMALL, lockfileVersion: 1 }))).toThrow('lockfileVersion');
  });

  test("every dependency in this repository's own lock file leads to one of its packages", async () => {
    const { packages } = parseLockfile(await repositoryLockfile());
    const names = new Set(packages.map(({ name }) => name));
    expect(names.size).toBe(packages.length);
    expect(packages.length).toBeGreaterThan(200);
    expect(packages.flatMap(({ dependsOn }) => dependsOn).filter((name) => !names.has(name))).toEqual([]);
  });
});

describe('loadLockfile', () => {
  test('loads an organisation and enqueues what builds graph and index, in one transaction', async ({
    platform,
    stores,
  }) => {
    const text = await repositoryLockfile();
    const { packages } = parseLockfile(text);
    const loaded = await loadLockfile(stores, text, noSignal);
    expect(loaded).toMatchObject({
      stacks: packages.length,
      declaredEdges: packages.reduce((sum, { dependsOn }) => sum + dependsOn.length, 0),
      resources: packages.reduce((sum, { facts }) => sum + facts.length + 1, 0),
    });
    expect(await countTasks(platform)).toEqual({
      dependency_graph_reconcile: packages.length,
      resource_index_rebuild: 1,
      seat_cap_audit: 1,
    });
    const ledger = await platform.selectFrom('ledger').select('committed').execute();
    expect(ledger).toHaveLength(packages.length + 2);
    expect(ledger.every(({ committed }) => committed)).toBe(true);
    const analyses = await platform.selectFrom('deployments').select('analysis_key').execute();
    expect(await keysBelow(stores.objects, 'stacks/')).toEqual(
      analyses.map(({ analysis_key }) => analysis_key).sort(),
    );
  });

  test('a lock file that cannot be loaded whole leaves no organisation and no task', async ({
    platform,
    stores,
  }) => {
    await loadLockfile(stores, JSON.stringify(SMALL), noSignal);
    const before = await countTasks(platform);
    await expect(loadLockfile(stores, JSON.stringify(SMALL), noSignal)).rejects.toThrow('rolled back');
    expect(await platform.selectFrom('organisations').select('name').execute()).toEqual([{ name: 'shop' }]);
    expect(await countTasks(platform)).toEqual(before);
  });
});
