import { describe, expect, test } from 'vitest';
import { type ZodType, z } from 'zod';
import { type Manifest, nextManifest, parseManifest, renderManifest } from '../../src/codegen/manifest.ts';
import { acceptSteps, findCautions, findProblems } from '../../src/codegen/revisions.ts';
import { defineTask, type Upgrades } from '../../src/domain/task-definition.ts';

const define = (payload: ZodType, upgrades: Upgrades<string> = {}) => [
  defineTask({ type: 'purge', payload, ceiling: '1m', upgrades }),
];

const FIRST = z.object({ id: z.string() });
const SECOND = z.object({ id: z.string(), hard: z.boolean() });
const THIRD = z.object({ id: z.string(), hard: z.boolean(), at: z.iso.date() });

/** The manifest after each schema in turn. */
function manifestOf(...schemas: ZodType[]): Manifest {
  return schemas.reduce((manifest: Manifest, schema) => nextManifest(manifest, define(schema)), new Map());
}

const steps = (definitions: ReturnType<typeof define>, manifest: Manifest) =>
  findProblems(definitions, manifest).map(({ from, to }) => [from, to]);

describe('the history of a type', () => {
  test('keeps the schema of every revision, and reads back as it was written', () => {
    const manifest = manifestOf(FIRST, SECOND, SECOND.describe('as it was'), THIRD);
    const entry = manifest.get('purge');
    expect(entry?.revision).toBe(3);
    expect(Object.keys(entry?.history ?? {})).toEqual(['1', '2']);
    expect(entry?.history?.[1]).toMatchObject({ required: ['id'] });
    expect(parseManifest(renderManifest(manifest), 'payloads.json')).toEqual(manifest);
  });

  test('outlives the type', () => {
    const gone = nextManifest(manifestOf(FIRST, SECOND), []);
    const back = nextManifest(gone, define(FIRST)).get('purge');
    expect(back).toMatchObject({ revision: 3 });
    expect(Object.keys(back?.history ?? {})).toEqual(['1', '2']);
    expect(back?.removed).toBeUndefined();
  });

  test('may be missing, as in manifests from before it was kept', () => {
    const text = '{"purge":{"revision":4,"schema":{"type":"string"}}}';
    const old = parseManifest(text, 'payloads.json');
    expect(findProblems(define(z.string()), nextManifest(old, define(z.string())))).toEqual([]);
    const next = nextManifest(old, define(z.int()));
    expect(Object.keys(next.get('purge')?.history ?? {})).toEqual(['4']);
    expect(steps(define(z.int()), next)).toEqual([[4, 5]]);
  });

  test.each([
    ['history of a revision to come', '"history":{"2":{}}', /history/],
    ['history of no revision', '"history":{"first":{}}', /history/],
    ['an acceptance without a reason', '"accepted":[{"revision":1,"reason":" "}]', /accepted/],
    ['an acceptance of no revision', '"accepted":[{"reason":"so"}]', /accepted/],
  ])('%s is refused', (_, text, problem) => {
    const manifest = `{"purge":{"revision":2,"schema":{},${text}}}`;
    expect(() => parseManifest(manifest, 'payloads.json')).toThrow(problem);
  });
});

describe('a breaking step', () => {
  test('is a problem without an upgrade to its revision, and none with it', () => {
    const manifest = manifestOf(FIRST, SECOND);
    expect(steps(define(SECOND), manifest)).toEqual([[1, 2]]);
    expect(steps(define(SECOND, { 2: (old) => old }), manifest)).toEqual([]);
  });

  test('is one however long ago it was: each step is looked at, not the last alone', () => {
    const manifest = manifestOf(FIRST, SECOND, THIRD);
    expect(steps(define(THIRD, { 3: (old) => old }), manifest)).toEqual([[1, 2]]);
    expect(steps(define(THIRD), manifest)).toEqual([
      [1, 2],
      [2, 3],
    ]);
  });

  test('that is compatible needs no upgrade', () => {
    expect(steps(define(FIRST), manifestOf(SECOND, FIRST))).toEqual([]);
  });

  test('is described with type, path, old, new and the two ways out', () => {
    const [problem] = findProblems(define(SECOND), manifestOf(FIRST, SECOND));
    expect(problem?.message).toBe(
      [
        "task type 'purge': rows of revision 1 may not fit revision 2",
        '  payload.hard: a required property was added',
        '    old  absent',
        '    new  required: boolean',
        '  Two ways out:',
        '    write how they become new ones, in its defineTask:  upgrades: { 2: (old) => ({ ...old }) }',
        '    or, if no such row can wait anywhere:  taskq codegen --accept purge --reason "why"',
      ].join('\n'),
    );
  });
});

test('an upgrade to a revision that there is not is a problem: it would never run', () => {
  const problems = findProblems(define(FIRST, { 3: (old) => old }), manifestOf(FIRST));
  expect(problems).toMatchObject([{ to: 3, breaking: [], message: expect.stringContaining('never runs') }]);
});

describe('an acceptance', () => {
  test('stands for an upgrade, with its reason, and stays through later revisions', () => {
    const reason = 'no row of revision 1 was ever enqueued';
    const accepted = acceptSteps(define(SECOND), manifestOf(FIRST, SECOND), [{ type: 'purge', reason }]);
    expect(accepted.get('purge')?.accepted).toEqual([{ revision: 2, reason }]);
    expect(findProblems(define(SECOND), accepted)).toEqual([]);
    const next = parseManifest(renderManifest(nextManifest(accepted, define(THIRD))), 'payloads.json');
    expect(steps(define(THIRD), next)).toEqual([[2, 3]]);
    expect(next.get('purge')?.accepted).toEqual([{ revision: 2, reason }]);
  });

  test.each([
    ['a type that is not defined', 'purg', 'so', /'purg': no such task type/],
    ['no reason', 'purge', ' ', /give a reason/],
  ])('of %s is refused', (_, type, reason, problem) => {
    const manifest = manifestOf(FIRST, SECOND);
    expect(() => acceptSteps(define(SECOND), manifest, [{ type, reason }])).toThrow(problem);
  });

  test('of a change that breaks nothing is refused, lest it be waiting for one that does', () => {
    const request = [{ type: 'purge', reason: 'so' }];
    expect(() => acceptSteps(define(FIRST), manifestOf(FIRST), request)).toThrow(/no breaking change/);
  });
});

test('a newly declared property is told once, when its revision is made', () => {
  const widened = FIRST.extend({ note: z.string().optional() });
  const next = manifestOf(FIRST, widened);
  expect(findCautions(manifestOf(FIRST), next)).toMatchObject([expect.stringContaining('payload.note')]);
  expect(findCautions(next, nextManifest(next, define(widened)))).toEqual([]);
});
