import type { Kysely } from 'kysely';
import type { Duration, Logger } from '../index.ts';
import type { ObjectStore } from './object-store.ts';
import type { ExploreTables, PlatformTables } from './tables.ts';

/** What the handlers need of the outside. Given to `createHandlers`; no module here keeps any of it. */
export interface HandlerServices {
  /** The platform's own tables, on the primary: what a read replica answers may be seconds old. */
  readonly primary: Kysely<PlatformTables>;
  /** The same on the read lane, for checks that may be that old. The primary where there is no replica. */
  readonly replica: Kysely<PlatformTables>;
  /** A database of its own: no transaction spans it and the primary. */
  readonly explore: Kysely<ExploreTables>;
  readonly objects: ObjectStore;
  readonly logger: Logger;
  /** How long a slice of a rebuild goes on. Two minutes, unless somebody wants to watch. */
  readonly slice?: Duration;
}
