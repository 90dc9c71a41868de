import type { ColumnType, Generated } from 'kysely';
import type { Reward, Rule } from './challenge-rules.ts';

/** The app's tables, as far as its tasks use them. src/social/services/schema.ts creates them. */
export interface SocialTables {
  accounts: AccountTable;
  refresh_tokens: CredentialTable;
  one_time_passwords: CredentialTable;
  sessions: CredentialTable;
  events: EventTable;
  moments: MomentTable;
  messages: MessageTable;
  notifications: NotificationTable;
  challenges: ChallengeTable;
  challenge_progress: ChallengeProgressTable;
  curios: CurioTable;
  curio_grants: CurioGrantTable;
  travel_logs: TravelLogTable;
  items: ItemTable;
  item_links: ItemLinkTable;
  parsed_links: ParsedLinkTable;
  enrichment_spends: EnrichmentSpendTable;
  locations: LocationTable;
  ranking_impressions: RankingImpressionTable;
  ranking_selections: RankingSelectionTable;
  gauges: GaugeTable;
}

type Instant = Date | null;
/** Null unless it is given. */
type Optional<Value> = ColumnType<Value | null, Value | null | undefined, Value | null>;

interface AccountTable {
  id: Generated<string>;
  handle: string;
  country: Optional<string>;
  status: Generated<'active' | 'suspended' | 'deactivated'>;
  avatar_key: Optional<string>;
  /** Set by moderation. */
  flagged_at: Optional<Date>;
  suspended_at: Optional<Date>;
  deactivated_at: Optional<Date>;
  activated_at: Optional<Date>;
  last_active_at: Optional<Date>;
  created_at: Generated<Date>;
  /** Links that may be enriched within a day. */
  enrichment_quota: Generated<number>;
}

/** Something that stands for an account until it expires. */
interface CredentialTable {
  id: Generated<string>;
  account_id: string;
  expires_at: Date;
}

interface EventTable {
  id: Generated<string>;
  /** Null once the account is gone: the event is an orphan then. */
  host_id: string | null;
  title: string;
  latitude: number;
  longitude: number;
  starts_at: Date;
  ends_at: Date;
  status: Generated<'upcoming' | 'live' | 'finished' | 'archived'>;
  archived_at: Optional<Date>;
  cover_key: Optional<string>;
  deleted_at: Optional<Date>;
}

interface MomentTable {
  id: Generated<string>;
  account_id: string;
  media_key: Optional<string>;
  /** Kept in its owner's journal: it does not expire. */
  is_journaled: Generated<boolean>;
  expires_at: Date;
  deleted_at: Optional<Date>;
}

interface MessageTable {
  id: Generated<string>;
  account_id: string;
  body: string;
  attachment_key: Optional<string>;
  /** Of a disappearing message only. */
  expires_at: Optional<Date>;
}

interface NotificationTable {
  id: Generated<string>;
  account_id: string;
  read_at: Optional<Date>;
  expires_at: Optional<Date>;
}

interface ChallengeTable {
  id: Generated<string>;
  title: string;
  status: Generated<'draft' | 'published' | 'archived'>;
  starts_at: Date;
  /** Null: without an end. */
  ends_at: Instant;
  rule: ColumnType<unknown, Rule, Rule>;
  reward: ColumnType<unknown, Reward, Reward>;
}

interface ChallengeProgressTable {
  account_id: string;
  challenge_id: string;
  is_satisfied: boolean;
}

interface CurioTable {
  id: Generated<string>;
  kind: 'stamp' | 'curio';
  name: string;
}

interface CurioGrantTable {
  account_id: string;
  curio_id: string;
  challenge_id: string;
  granted_at: Generated<Date>;
}

interface TravelLogTable {
  id: Generated<string>;
  account_id: string;
  country: string;
  category: string;
  travelled_at: Date;
}

interface ItemTable {
  id: Generated<string>;
  account_id: string;
  capture: string;
  /** Counts up with every edit. */
  revision: Generated<number>;
  /** The revision that title, tags and links are of. */
  parsed_revision: Optional<number>;
  title: Optional<string>;
  tags: Generated<string[]>;
  /** The task that enriches the links at the moment, until it must have stopped. */
  enriching_task_id: Optional<string>;
  enriching_until: Optional<Date>;
}

interface ItemLinkTable {
  item_id: string;
  link_id: string;
}

/** Shared by all the items with the link. */
interface ParsedLinkTable {
  id: Generated<string>;
  url: string;
  title: Optional<string>;
  description: Optional<string>;
  enriched_at: Optional<Date>;
  /** Why there is no title: the page is gone, or is no page. */
  problem: Optional<string>;
  created_at: Generated<Date>;
}

/** What one task took from its account's quota. One row for a task, however often it runs. */
interface EnrichmentSpendTable {
  task_id: string;
  account_id: string;
  links: number;
  spent_at: Generated<Date>;
}

interface LocationTable {
  id: Generated<string>;
  name: string;
  category: string;
  latitude: number;
  longitude: number;
  is_active: Generated<boolean>;
  enrichment_at: Optional<Date>;
  geohash: Optional<string>;
  embedding: Optional<number[]>;
  created_at: Generated<Date>;
}

interface RankingImpressionTable {
  id: Generated<string>;
  query: string;
  shown_at: Generated<Date>;
}

interface RankingSelectionTable {
  id: Generated<string>;
  impression_id: string;
  selected_at: Generated<Date>;
}

/** The newest sample of each gauge: any replica may have taken it, and every replica can show it. */
interface GaugeTable {
  name: string;
  /** As it stands in the exposition: `country="NZ"`, or empty. */
  label: string;
  value: number;
  sampled_at: Generated<Date>;
}
