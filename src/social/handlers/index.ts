import { defineHandlers, type Tasks } from '../../../generated/social/tasks.ts';
import type { HandlerRegistry } from '../../index.ts';
import { type CleanupServices, cleanupHandlers } from './cleanup.ts';
import { type CronServices, cronHandlers } from './cron.ts';
import { type EventServices, eventHandlers } from './event.ts';
import { type ItemServices, itemHandlers } from './item.ts';

/** What the handlers need of the app. */
export type HandlerServices = EventServices & ItemServices & CronServices & CleanupServices;

/** The handlers of every task type, over the services given. A type without its handler does not compile. */
export function createHandlers(services: HandlerServices): HandlerRegistry<Tasks> {
  return defineHandlers({
    ...eventHandlers(services),
    ...itemHandlers(services),
    ...cronHandlers(services),
    ...cleanupHandlers(services),
  });
}
