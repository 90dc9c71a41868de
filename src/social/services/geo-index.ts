import { randomUUID } from 'node:crypto';

/** An event on the map. */
export interface GeoEvent {
  readonly id: string;
  readonly latitude: number;
  readonly longitude: number;
}

/** The events on the map, in Redis, where the app asks what is near. */
export interface GeoIndex {
  /** Puts `events` in the place of all that was there, at once: nobody sees the map half full. */
  replaceAll(events: AsyncIterable<readonly GeoEvent[]>, signal: AbortSignal): Promise<number>;
}

/** What a sync leaves behind when it is killed goes away by itself. */
const LEFTOVER_SECONDS = 3_600;

/** What it takes of a client of `@redis/client`. */
export interface GeoCommands {
  withAbortSignal(signal: AbortSignal): Omit<GeoCommands, 'withAbortSignal'>;
  geoAdd(key: string, members: { member: string; latitude: number; longitude: number }[]): Promise<unknown>;
  expire(key: string, seconds: number): Promise<unknown>;
  persist(key: string): Promise<unknown>;
  rename(key: string, to: string): Promise<unknown>;
  del(key: string): Promise<unknown>;
}

export class RedisGeoIndex implements GeoIndex {
  readonly #client: GeoCommands;
  readonly #key: string;

  constructor(client: GeoCommands, key = 'events:geo') {
    this.#client = client;
    this.#key = key;
  }

  async replaceAll(events: AsyncIterable<readonly GeoEvent[]>, signal: AbortSignal): Promise<number> {
    const client = this.#client.withAbortSignal(signal);
    // A key of this run's own: a sync that another has overtaken must not mix its events with that one's.
    const next = `${this.#key}:${randomUUID()}`;
    let count = 0;
    try {
      for await (const page of events) {
        if (page.length === 0) continue;
        await client.geoAdd(
          next,
          page.map(({ id: member, latitude, longitude }) => ({ member, latitude, longitude })),
        );
        await client.expire(next, LEFTOVER_SECONDS);
        count += page.length;
      }
      signal.throwIfAborted();
      if (count === 0) {
        await client.del(this.#key);
        return 0;
      }
      // The expiry goes along with a rename.
      await client.persist(next);
      await client.rename(next, this.#key);
      return count;
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    }
  }
}
