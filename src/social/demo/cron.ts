import { defineCron, type TaskType, tasks } from '../../../generated/social/tasks.ts';

export type CronType = Extract<TaskType, `cron:${string}`>;

export const CRON_TYPES = Object.keys(tasks).filter((type): type is CronType => type.startsWith('cron:'));

/** src/social/cron.ts in a hurry: the same sixteen entries, each every two seconds. */
export const hurriedCron = defineCron(
  CRON_TYPES.map((task) => ({ schedule: '@every 2s', task, overlap: 'skip' })),
);
