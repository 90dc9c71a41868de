import type { ObjectStore } from '../handlers/index.ts';
import type { Duration } from '../index.ts';
import type { DemoDatabase, ExploreDatabase } from './schema.ts';

/** Where the platform keeps what it knows. */
export interface Stores {
  readonly db: DemoDatabase;
  readonly explore: ExploreDatabase;
  readonly objects: ObjectStore;
}

/** What the service works with. */
export interface ServiceStores extends Stores {
  /** How far ahead prefix deletes are enqueued. `PREFIX_DELETE_DELAY`, unless somebody wants to watch. */
  readonly prefixDeleteDelay?: Duration;
}
