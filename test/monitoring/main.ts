// `npm run monitoring`: writes docs/monitoring.
import { writeMonitoring } from './files.ts';

writeMonitoring();
