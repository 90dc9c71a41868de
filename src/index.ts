// The public surface, name by name: every export is a promise. Pinned by test/types/public-surface.test-d.ts.
export { type App, type AppOptions, createApp, type Role } from './app.ts';
export { defineConfig, type TaskqConfig } from './config.ts';
export type { Duration } from './domain/duration.ts';
export { type ErrorCode, SkipRetry, TaskqError } from './domain/errors.ts';
export type {
  ContextOf,
  Handler,
  HandlerContext,
  HandlerResult,
  HandlerTransaction,
  SlicedHandlerContext,
} from './domain/handler.ts';
export type { Health, HealthProblem } from './domain/health.ts';
export type { TaskId } from './domain/ids.ts';
export type { Logger } from './domain/logger.ts';
export type { Observer, QueueEvent, TaskFacts } from './domain/observer.ts';
export type { Outcome } from './domain/outcome.ts';
export type { SliceBudget, SliceProgress, StoppedEarly } from './domain/slice.ts';
export {
  defineTask,
  type PayloadInput,
  type PayloadOutput,
  type PayloadRevisions,
  type TaskDefinition,
  type TaskDefinitionOptions,
  type Upgrade,
  type Upgrades,
  type Wake,
} from './domain/task-definition.ts';
export {
  createRegistry,
  type HandlerRegistry,
  type HandlersFor,
  type RegisteredTask,
  type TaskSet,
} from './domain/task-set.ts';
export type {
  OnConflict,
  PayloadPath,
  UniqueOptions,
  UniqueWhile,
} from './domain/uniqueness.ts';
export {
  type CallerTransaction,
  createEnqueuer,
  dequeueUnleased,
  type EnqueueAdditions,
  type EnqueueCall,
  type Enqueued,
  type EnqueuedCounts,
  type EnqueueEnd,
  type EnqueueMiddleware,
  type EnqueueOptions,
  type Enqueuer,
  type EnqueuerOptions,
} from './enqueue.ts';
export type { AppMetrics } from './metrics/source.ts';
export type { ConnectionSettings } from './postgres/lanes.ts';
export { PreparingClient } from './postgres/preparing-client.ts';
export type { HandlerEnd, RunCall, RunMiddleware } from './processor/run-middleware.ts';
export { type CronEntries, type CronEntry, createCron, type MissedPolicy } from './scheduler/entries.ts';
export { type Page, type WalkOptions, walkPages } from './slices/walk-pages.ts';
export type { QueryExecutor } from './statements/lanes.ts';
export { type MigrateOptions, type MigrationReport, migrateUp } from './statements/migrate.ts';
export { type QueryValue, queryExecutor } from './statements/query-executor.ts';
export { inThread, type ThreadHandler, type ThreadOptions } from './threads/in-thread.ts';
export { traceEnqueue } from './tracing/trace-enqueue.ts';
export { traceRuns } from './tracing/trace-runs.ts';
