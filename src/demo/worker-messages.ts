import type { ObjectStoreSettings } from '../handlers/index.ts';
import type { ConnectionSettings, Outcome } from '../index.ts';

/** Where the stores are. */
export interface StoreSettings {
  readonly database: ConnectionSettings;
  readonly explore: ConnectionSettings;
  readonly objects: ObjectStoreSettings;
}

/** What the demo tells a worker process. */
export type ToWorker =
  | { readonly kind: 'start'; readonly name: string; readonly stores: StoreSettings }
  | { readonly kind: 'stop' };

/** What a worker process reports, in the order in which it happened. */
export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'claimed'; readonly id: string; readonly type: string; readonly attempt: number }
  | {
      readonly kind: 'settled';
      readonly id: string;
      readonly type: string;
      readonly attempt: number;
      readonly outcome: Outcome;
      readonly dead: boolean;
      readonly error: string | undefined;
    }
  | { readonly kind: 'trouble'; readonly text: string };
