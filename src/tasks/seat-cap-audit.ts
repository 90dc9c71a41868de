import { z } from 'zod';
import { defineTask } from '../index.ts';

/** Recounts the seats an organisation takes and records them beside its cap. */
export const seatCapAudit = defineTask({
  type: 'seat_cap_audit',
  payload: z.strictObject({ organisationId: z.uuid() }),
  ceiling: '5m',
});
