// `npm run readme`: writes the tables of the README and of the docs that are made from the code.
import { writeConfiguration } from './support/config-table.ts';
import { writeLogTable } from './support/log-table.ts';
import { writeMetrics } from './support/metrics-table.ts';
import { writePromises } from './support/promises-table.ts';
import { writeTruthTable } from './support/unique-truth-table.ts';

writePromises();
writeConfiguration();
writeTruthTable();
writeMetrics();
writeLogTable();
