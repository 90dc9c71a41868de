import { sql } from 'kysely';
import { z } from 'zod';
import { enqueue, enqueueMany } from '../../../generated/social/tasks.ts';
import type { CallerTransaction } from '../../index.ts';
import {
  type Facts,
  grantedBy,
  isSatisfied,
  namedIn,
  type Reward,
  type Rule,
  rewardSchema,
  ruleSchema,
} from './challenge-rules.ts';
import {
  type RunLimits,
  type SocialDatabase,
  type SocialTransaction,
  transactionWithin,
} from './run-limits.ts';

const CHALLENGE = ['id', 'rule', 'reward', 'starts_at', 'ends_at'] as const;
/** The database tells the time. */
const now = sql<Date>`now()`;

/** Accounts of one slice of a replay. */
const REPLAY_PAGE_ACCOUNTS = 500;

export interface Evaluation {
  readonly granted: number;
  /** Challenges whose trees could not be read; the others were evaluated. */
  readonly unreadable: readonly string[];
}

export interface ReplaySlice {
  readonly accounts: number;
  readonly granted: number;
  /** Undefined when there are no more. */
  readonly afterAccountId: string | undefined;
}

interface Challenge {
  readonly id: string;
  readonly rule: Rule;
  readonly reward: Reward;
  readonly starts_at: Date;
  readonly ends_at: Date | null;
}

/** Challenges: rules that are met by travelling, and what they reward. */
export class GameEngine {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Evaluates what the author of a travel log may have earned with it. Undefined when the log is gone. */
  async evaluateTravelLog(travelLogId: string, limits: RunLimits): Promise<Evaluation | undefined> {
    return transactionWithin(this.#db, limits, async (tx) => {
      const log = await tx
        .selectFrom('travel_logs')
        .select('account_id')
        .where('id', '=', travelLogId)
        .executeTakeFirst();
      return log && evaluatePublished(tx, log.account_id);
    });
  }

  /** The same for an account. Undefined when it is gone. */
  async evaluateAccount(accountId: string, limits: RunLimits): Promise<Evaluation | undefined> {
    return transactionWithin(this.#db, limits, (tx) => evaluatePublished(tx, accountId));
  }

  /** Archives a challenge whose window has ended, and lets go of what nobody has met. False when it has not ended. */
  async expireChallenge(challengeId: string, limits: RunLimits): Promise<boolean> {
    return transactionWithin(this.#db, limits, async (tx) => {
      const { numUpdatedRows } = await tx
        .updateTable('challenges')
        .set({ status: 'archived' })
        .where('id', '=', challengeId)
        .where('status', '<>', 'draft')
        .where('ends_at', '<=', now)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return false;
      await tx
        .deleteFrom('challenge_progress')
        .where('challenge_id', '=', challengeId)
        .where('is_satisfied', '=', false)
        .execute();
      return true;
    });
  }

  /** Flips every published challenge past its window to archived: the backstop of `expireChallenge`. */
  async archiveEnded(limits: RunLimits): Promise<number> {
    return transactionWithin(this.#db, limits, async (tx) => {
      const { numUpdatedRows } = await tx
        .updateTable('challenges')
        .set({ status: 'archived' })
        .where('status', '=', 'published')
        .where('ends_at', '<=', now)
        .executeTakeFirst();
      return Number(numUpdatedRows);
    });
  }

  /** Evaluates one challenge for the next page of accounts. Undefined when it is gone, or was never published. */
  async replayChallenge(
    challengeId: string,
    afterAccountId: string | undefined,
    limits: RunLimits,
  ): Promise<ReplaySlice | undefined> {
    return transactionWithin(this.#db, limits, async (tx) => {
      const row = await tx
        .selectFrom('challenges')
        .select(CHALLENGE)
        .where('id', '=', challengeId)
        .where('status', '<>', 'draft')
        .executeTakeFirst();
      if (row === undefined) return undefined;
      const challenge = readChallenge(row);
      const accounts = await tx
        .selectFrom('accounts')
        .select('id')
        .where('status', '=', 'active')
        .$if(afterAccountId !== undefined, (query) => query.where('id', '>', afterAccountId as string))
        .orderBy('id')
        .limit(REPLAY_PAGE_ACCOUNTS)
        .execute();
      let granted = 0;
      for (const { id } of accounts) granted += await evaluate(tx, id, challenge);
      const isLast = accounts.length < REPLAY_PAGE_ACCOUNTS;
      return {
        accounts: accounts.length,
        granted,
        afterAccountId: isLast ? undefined : accounts.at(-1)?.id,
      };
    });
  }

  /** Enqueues a replay of every challenge that may reward the curio. */
  async replayStamp(curioId: string, limits: RunLimits): Promise<number> {
    return transactionWithin(this.#db, limits, async (tx) => {
      const rows = await tx
        .selectFrom('challenges')
        .select(['id', 'reward'])
        .where('status', '<>', 'draft')
        .execute();
      const challenges = rows.filter(({ reward }) => {
        const tree = rewardSchema.safeParse(reward);
        return tree.success && namedIn(tree.data).includes(curioId);
      });
      await enqueueMany(
        tx,
        'engine:replay_challenge',
        challenges.map(({ id }) => ({ challengeId: id })),
      );
      return challenges.length;
    });
  }
}

/** A travel log, and the task that looks at what it earns, in one transaction. */
export async function writeTravelLog(
  tx: SocialTransaction,
  log: { readonly accountId: string; readonly country: string; readonly category: string },
): Promise<string> {
  const { accountId, country, category } = log;
  const { id } = await tx
    .insertInto('travel_logs')
    .values({ account_id: accountId, country, category, travelled_at: now })
    .returning('id')
    .executeTakeFirstOrThrow();
  await enqueue(tx, 'engine:eval_travel_log', { travelLogId: id });
  return id;
}

export async function activateAccount(tx: SocialTransaction, accountId: string): Promise<void> {
  await tx.updateTable('accounts').set({ activated_at: now }).where('id', '=', accountId).execute();
  await enqueue(tx, 'engine:eval_user_activated', { accountId });
}

/**
 * Publishes a challenge, or moves the end of its window. The task that expires it waits for that moment; a later call
 * replaces it, due time and all.
 */
export async function publishChallenge(
  tx: SocialTransaction,
  challengeId: string,
  endsAt: Date | null,
): Promise<void> {
  const row = await tx
    .updateTable('challenges')
    .set({ status: 'published', ends_at: endsAt })
    .where('id', '=', challengeId)
    .returning(CHALLENGE)
    .executeTakeFirstOrThrow();
  readChallenge(row);
  if (endsAt !== null) await enqueue(tx, 'engine:expire_challenge', { challengeId }, { runAt: endsAt });
}

/** By an administrator, after a rule was mended. */
export async function requestReplay(
  tx: CallerTransaction,
  of: { readonly challengeId: string } | { readonly curioId: string },
): Promise<void> {
  if ('challengeId' in of) await enqueue(tx, 'engine:replay_challenge', of);
  else await enqueue(tx, 'engine:replay_stamp', of);
}

const trees = z.object({ rule: ruleSchema, reward: rewardSchema });

type ChallengeRow = Omit<Challenge, 'rule' | 'reward'> & { readonly rule: unknown; readonly reward: unknown };

/** @throws ZodError for trees that cannot be read */
function readChallenge(row: ChallengeRow): Challenge {
  return { ...row, ...trees.parse(row) };
}

async function evaluatePublished(tx: SocialTransaction, accountId: string): Promise<Evaluation | undefined> {
  const account = await tx
    .selectFrom('accounts')
    .select('id')
    .where('id', '=', accountId)
    .where('status', '=', 'active')
    .executeTakeFirst();
  if (account === undefined) return undefined;
  const rows = await tx
    .selectFrom('challenges')
    .select(CHALLENGE)
    .where('status', '=', 'published')
    .orderBy('id')
    .execute();
  let granted = 0;
  const unreadable: string[] = [];
  for (const row of rows) {
    const parsed = trees.safeParse(row);
    if (parsed.success) granted += await evaluate(tx, accountId, { ...row, ...parsed.data });
    else unreadable.push(row.id);
  }
  return { granted, unreadable };
}

/** Evaluates one challenge for one account; grants what was earned and not granted yet. Answers how much that was. */
async function evaluate(tx: SocialTransaction, accountId: string, challenge: Challenge): Promise<number> {
  const facts = await factsOf(tx, accountId, challenge);
  const isMet = isSatisfied(challenge.rule, facts);
  await tx
    .insertInto('challenge_progress')
    .values({ account_id: accountId, challenge_id: challenge.id, is_satisfied: isMet })
    .onConflict((conflict) =>
      conflict.columns(['account_id', 'challenge_id']).doUpdateSet({ is_satisfied: isMet }),
    )
    .execute();
  const curios = isMet ? grantedBy(challenge.reward, facts) : [];
  if (curios.length === 0) return 0;
  // What was granted stays, and is granted once: the same evaluation may run again, or beside another.
  const { numInsertedOrUpdatedRows = 0n } = await tx
    .insertInto('curio_grants')
    .values(curios.map((curio_id) => ({ account_id: accountId, curio_id, challenge_id: challenge.id })))
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirstOrThrow();
  return Number(numInsertedOrUpdatedRows);
}

async function factsOf(tx: SocialTransaction, accountId: string, challenge: Challenge): Promise<Facts> {
  const { starts_at, ends_at } = challenge;
  const { activated_at } = await tx
    .selectFrom('accounts')
    .select('activated_at')
    .where('id', '=', accountId)
    .executeTakeFirstOrThrow();
  const travels = await tx
    .selectFrom('travel_logs')
    .select(['country', 'category'])
    .where('account_id', '=', accountId)
    .where('travelled_at', '>=', starts_at)
    .$if(ends_at !== null, (query) => query.where('travelled_at', '<', ends_at as Date))
    .execute();
  return { isActivated: activated_at !== null, travels };
}
