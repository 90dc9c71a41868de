import type { Live } from './live.js';
import type { Place } from './router.js';
import type { Node } from './view.js';

/** What a page is given. */
export interface Context {
  readonly live: Live;
  /** Whether this session may act; a page shows its buttons only then. The server decides again. */
  readonly mayAct: boolean;
  /** Draws the page again, soon. */
  update(): void;
  /** Goes to another place. */
  go(hash: string): void;
}

export interface Page {
  /** For the window's title. */
  readonly title: string;
  view(): Node;
  /** A snapshot has come. */
  onLive?(): void;
  /** The same page at another place: other filters. */
  moved?(place: Place): void;
  leave?(): void;
}

export type MakePage = (context: Context, place: Place) => Page;
