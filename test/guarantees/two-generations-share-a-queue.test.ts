import { expect } from 'vitest';
import type { TestDatabase } from '../support/databases.ts';
import { test } from '../support/test.ts';
import { allRows, type RowImage, wakeReplicas } from '../support/rows.ts';
import { startWorkerProcess, type WorkerProcess } from '../support/worker-process.ts';
import { codeOf, type Generation } from './fixtures/generations.ts';

// A rollout as it is: old and new code in processes of their own, over one queue, both enqueuing and both working.
