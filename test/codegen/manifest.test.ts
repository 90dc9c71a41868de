import { expect, test } from 'vitest';
import { z } from 'zod';
import { type Manifest, nextManifest, parseManifest, renderManifest } from '../../src/codegen/manifest.ts';

const NONE: Manifest = new Map();
const revision = (manifest: Manifest, type = 'purge') => manifest.get(type)?.revision;
const purge = (payload: z.ZodType) => [{ type: 'purge', payload }];

test('a new type starts at revision 1, and stays there while its schema does', () => {
  const first = nextManifest(NONE, purge(z.object({ id: z.string() })));
  expect(revision(first)).toBe(1);
  const again = nextManifest(first, purge(z.object({ id: z.string() })));
  expect(renderManifest(again)).toBe(renderManifest(first));
});

test('each changed schema counts one up', () => {
  let manifest = nextManifest(NONE, purge(z.string()));
  for (const [payload, expected] of [
    [z.string().min(1), 2],
    [z.string().min(1), 2],
    [z.string(), 3],
    [z.string().describe('a comment'), 3],
  ] as const) {
    manifest = nextManifest(manifest, purge(payload));
    expect(revision(manifest)).toBe(expected);
  }
});

test('a type that vanished is kept, and does not start at 1 when it comes back', () => {
  const second = nextManifest(nextManifest(NONE, purge(z.string())), purge(z.number()));
  const gone = nextManifest(second, []);
  expect(gone.get('purge')).toMatchObject({ revision: 2, removed: true });
  expect(nextManifest(gone, []).get('purge')).toEqual(gone.get('purge'));
  expect(nextManifest(gone, purge(z.number())).get('purge')).toEqual(second.get('purge'));
  expect(revision(nextManifest(gone, purge(z.boolean())))).toBe(3);
});

test('a manifest reads back as it was written, whatever its types are called', () => {
  const types = ['__proto__', 'constructor', '10', '9', 'ünï', "a'b"];
  const manifest = nextManifest(
    NONE,
    types.map((type) => ({ type, payload: z.object({ type: z.literal(type) }) })),
  );
  const text = renderManifest(manifest);
  const read = parseManifest(text, 'payloads.json');
  expect([...read.keys()].toSorted()).toEqual(types.toSorted());
  expect(renderManifest(read)).toBe(text);
});

test.each([
  ['a merge conflict', '<<<<<<< HEAD\n{}', /merge conflict/],
  ['an array', '[]', /expected an object/],
  ['a revision that is no number', '{"a":{"revision":"1","schema":{}}}', /'a': revision/],
  ['a type without a schema', '{"a":{"revision":1}}', /'a': it has no schema/],
])('%s in the manifest is refused, naming the file', (_, text, problem) => {
  expect(() => parseManifest(text, 'payloads.json')).toThrow(/^payloads\.json cannot be read/);
  expect(() => parseManifest(text, 'payloads.json')).toThrow(problem);
});
