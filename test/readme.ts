// `npm run readme`: writes the tables of the README that are made from the code.
import { writeConfiguration } from './support/config-table.ts';
import { writePromises } from './support/promises-table.ts';

writePromises();
writeConfiguration();
