// Whose objects lie where. A prefix that people upload to needs two lines: its constant, and its owner below.

export const PREFIX = {
  avatars: 'avatars/',
  moments: 'moments/',
  eventCovers: 'event-covers/',
  chat: 'chat/',
  stamps: 'stamps/',
  bespokeStamps: 'stamps/bespoke/',
  curios: 'curios/',
} as const;

/** Made by the staff and owned by no row of a user: never swept, never deleted by a task. */
const CURATED_PREFIXES: readonly string[] = [PREFIX.stamps, PREFIX.bespokeStamps, PREFIX.curios];

/** The column that owns the keys of a prefix. No curated prefix has one, so that none can be swept. */
const OWNERS = new Map<string, Owner>([
  [PREFIX.avatars, { table: 'accounts', column: 'avatar_key' }],
  [PREFIX.moments, { table: 'moments', column: 'media_key' }],
  [PREFIX.eventCovers, { table: 'events', column: 'cover_key' }],
  [PREFIX.chat, { table: 'messages', column: 'attachment_key' }],
]);

export interface Owner {
  readonly table: 'accounts' | 'moments' | 'events' | 'messages';
  readonly column: 'avatar_key' | 'media_key' | 'cover_key' | 'attachment_key';
}

export function isCurated(key: string): boolean {
  return CURATED_PREFIXES.some((prefix) => key.startsWith(prefix));
}

/** Undefined for a curated prefix, for one that nobody uploads to, and for anything but a whole prefix: no slash, none. */
export function ownerOf(prefix: string): Owner | undefined {
  return OWNERS.get(prefix);
}

export function sweptPrefixes(): string[] {
  return [...OWNERS.keys()];
}
