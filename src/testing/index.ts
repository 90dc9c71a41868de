// What tests of an application use, as `taskq/testing`. Knows no test runner: what fails is thrown as an Error.
export { type DrainOptions, drain, type SettledRun } from './drain.ts';
export { type EnqueuedInOptions, type EnqueuedTask, enqueuedIn } from './enqueued.ts';
export { type ExpectEnqueuedOptions, expectEnqueued } from './expect-enqueued.ts';
export { type RunTaskOptions, runTask, type TaskRun } from './run-task.ts';
export { createTestClock, type TestClock, type TestClockOptions } from './test-clock.ts';
