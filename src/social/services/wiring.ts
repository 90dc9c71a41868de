import type { HandlerServices } from '../handlers/index.ts';
import { Accounts } from './accounts.ts';
import { Assets } from './assets.ts';
import { Credentials } from './credentials.ts';
import { Events } from './events.ts';
import type { FileStorage } from './file-storage.ts';
import { GameEngine } from './game-engine.ts';
import type { GeoIndex } from './geo-index.ts';
import { Items } from './items.ts';
import type { LinkPreviewer } from './link-preview.ts';
import { Links } from './links.ts';
import { Locations } from './locations.ts';
import { Messages } from './messages.ts';
import { Moments } from './moments.ts';
import { Notifications } from './notifications.ts';
import { Rankings } from './rankings.ts';
import type { SocialDatabase } from './run-limits.ts';

/** What the services stand on. */
export interface Stores {
  readonly db: SocialDatabase;
  readonly storage: FileStorage;
  /** Undefined where there is no Redis. */
  readonly geo: GeoIndex | undefined;
  readonly previewer: LinkPreviewer;
  /** See `AssetOptions`. */
  readonly orphanAgeMs?: number;
}

/** Binds what the handlers ask for to the services that do it. */
export function createServices(stores: Stores): HandlerServices {
  const { db, geo, previewer } = stores;
  const locations = new Locations(db);
  const links = new Links(db, previewer);
  const engine = new GameEngine(db);
  const accounts = new Accounts(db);
  const events = new Events(db, geo);
  const messages = new Messages(db);
  const moments = new Moments(db);
  const credentials = new Credentials(db);
  const notifications = new Notifications(db);
  const rankings = new Rankings(db);
  return {
    locationEnricher: locations,
    engineEvaluator: engine,
    engineExpirer: engine,
    engineReplayer: engine,
    itemParser: new Items(db),
    linkEnricher: links,
    assets: new Assets(stores),
    accounts,
    challenges: engine,
    credentials,
    events,
    links,
    locations,
    messages,
    moments,
    notifications,
    rankings,
  };
}
