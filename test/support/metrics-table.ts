import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { renderMetricsTable } from '../../src/metrics/names.ts';

const PAGE = fileURLToPath(new URL('../../docs/metrics.md', import.meta.url));
const BLOCK = /<!-- metrics:begin -->\n[\s\S]*?<!-- metrics:end -->/;

/** The table of metrics of docs/metrics.md, with its markers. */
export function renderMetrics(): string {
  return `<!-- metrics:begin -->\n${renderMetricsTable()}\n<!-- metrics:end -->`;
}

export function metricsInPage(): string | undefined {
  return BLOCK.exec(readFileSync(PAGE, 'utf8'))?.[0];
}

/** Writes the table into the page. */
export function writeMetrics(): void {
  writeFileSync(
    PAGE,
    readFileSync(PAGE, 'utf8').replace(BLOCK, () => renderMetrics()),
  );
}
