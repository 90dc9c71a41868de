import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const README = fileURLToPath(new URL('../../README.md', import.meta.url));
const GUARANTEES = fileURLToPath(new URL('../guarantees/', import.meta.url));
const BLOCK = /<!-- promises:begin -->\n[\s\S]*?<!-- promises:end -->/;

/** The README's table of promises: every test of every file below test/guarantees, in the files' order. */
export function renderPromises(): string {
  const rows = readdirSync(GUARANTEES)
    .filter((name) => name.endsWith('.test.ts'))
    .sort()
    .flatMap((name) => titles(`${GUARANTEES}${name}`).map((title) => ({ title, name })));
  const lines = rows.map(({ title, name }) => {
    const sentence = `${title.charAt(0).toUpperCase()}${title.slice(1)}`.replaceAll('|', '\\|');
    return `| ${sentence} | [${name.replace('.test.ts', '')}](test/guarantees/${name}) |`;
  });
  return [
    '<!-- promises:begin -->',
    '| promise | test |',
    '| --- | --- |',
    ...lines,
    '<!-- promises:end -->',
  ].join('\n');
}

export function promisesInReadme(): string | undefined {
  return BLOCK.exec(readFileSync(README, 'utf8'))?.[0];
}

/** Writes the table into the README. */
export function writePromises(): void {
  writeFileSync(
    README,
    readFileSync(README, 'utf8').replace(BLOCK, () => renderPromises()),
  );
}

/** Titles as they stand in the source. Tests made from a table are named by the `describe` around them. */
function titles(file: string): string[] {
  const source = readFileSync(file, 'utf8');
  const of = (functions: string) =>
    [
      ...source.matchAll(new RegExp(`^\\s*(?:${functions})\\(\\s*(['"\`])((?:\\\\.|(?!\\1).)*)\\1`, 'gm')),
    ].map((match) => (match[2] ?? '').replaceAll(/\\(['"`])/g, '$1'));
  const tests = of('test|it');
  const plain = tests.filter((title) => !title.includes('${'));
  return plain.length === tests.length ? plain : [...of('describe'), ...plain];
}
