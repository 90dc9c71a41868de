import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { renderConfigTable } from '../../src/config.ts';

const README = fileURLToPath(new URL('../../README.md', import.meta.url));
const BLOCK = /<!-- configuration:begin -->\n[\s\S]*?<!-- configuration:end -->/;

/** The README's table of settings, with its markers. */
export function renderConfiguration(): string {
  return `<!-- configuration:begin -->\n${renderConfigTable()}\n<!-- configuration:end -->`;
}

export function configurationInReadme(): string | undefined {
  return BLOCK.exec(readFileSync(README, 'utf8'))?.[0];
}

/** Writes the table into the README. */
export function writeConfiguration(): void {
  writeFileSync(
    README,
    readFileSync(README, 'utf8').replace(BLOCK, () => renderConfiguration()),
  );
}
