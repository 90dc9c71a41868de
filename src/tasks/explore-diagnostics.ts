import { z } from 'zod';
import { defineTask } from '../index.ts';

/** Scans everything that Explore knows of an organisation and publishes what it finds. */
export const exploreDiagnostics = defineTask({
  type: 'explore_diagnostics',
  payload: z.strictObject({
    organisationId: z.uuid(),
    // Counts the requests for a scan: the findings of an older one never replace those of a newer one.
    generation: z.int().positive(),
  }),
  // Sized for a topology, not for the measured seconds: behind a transaction pooler a session's statement timeout
  // does not apply, and this is then the only bound on scans of a whole organisation.
  ceiling: '30m',
  // One request that waits stands for all: it takes over the newest generation.
  unique: { by: ['organisationId'], while: 'waiting', onConflict: 'replace' },
});
