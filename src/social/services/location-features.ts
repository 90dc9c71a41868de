// What search wants to know of a place, worked out from the place alone.
import { createHash } from 'node:crypto';

interface Place {
  readonly name: string;
  readonly category: string;
  readonly latitude: number;
  readonly longitude: number;
}

const BASE_32 = '0123456789bcdefghjkmnpqrstuvwxyz';
/** Some five metres. */
const GEOHASH_LENGTH = 9;
const BITS_PER_LETTER = 5;
export const EMBEDDING_DIMENSIONS = 32;

/** The place as a geohash: nearby places share a beginning. */
export function geohashOf({ latitude, longitude }: Pick<Place, 'latitude' | 'longitude'>): string {
  const ranges = { longitude: [-180, 180], latitude: [-90, 90] } as { longitude: Range; latitude: Range };
  let letters = '';
  let bits = 0;
  for (let place = 0; place < GEOHASH_LENGTH * BITS_PER_LETTER; place += 1) {
    const axis = place % 2 === 0 ? 'longitude' : 'latitude';
    const [low, high] = ranges[axis];
    const middle = (low + high) / 2;
    const isUpper = (axis === 'longitude' ? longitude : latitude) >= middle;
    ranges[axis] = isUpper ? [middle, high] : [low, middle];
    bits = bits * 2 + (isUpper ? 1 : 0);
    if (place % BITS_PER_LETTER === BITS_PER_LETTER - 1) {
      letters += BASE_32[bits];
      bits = 0;
    }
  }
  return letters;
}

type Range = readonly [low: number, high: number];

/** Words and category, each hashed to a direction: texts that share words are close. Of length one. */
export function embeddingOf({ name, category }: Pick<Place, 'name' | 'category'>): number[] {
  const words = name.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const vector = new Array<number>(EMBEDDING_DIMENSIONS).fill(0);
  for (const word of [`category ${category}`, ...words]) {
    const hash = createHash('sha256').update(word).digest();
    for (let dimension = 0; dimension < EMBEDDING_DIMENSIONS; dimension += 1) {
      vector[dimension] = (vector[dimension] ?? 0) + (hash[dimension] ?? 0) / 127.5 - 1;
    }
  }
  const length = Math.hypot(...vector);
  return length === 0 ? vector : vector.map((value) => value / length);
}
