// The two trees of a challenge: when it is met, and what it rewards. Pure, so that both can be read at a glance.
import { z } from 'zod';

/** What a rule may look at: the travel logs within the challenge's window, and the account. */
export interface Facts {
  readonly isActivated: boolean;
  readonly travels: readonly { readonly country: string; readonly category: string }[];
}

export type Rule =
  | { readonly all: readonly Rule[] }
  | { readonly any: readonly Rule[] }
  | { readonly not: Rule }
  | { readonly activated: true }
  | { readonly visits: { readonly atLeast: number; readonly country?: string; readonly category?: string } }
  | { readonly countries: { readonly atLeast: number } };

/** Which curios a met challenge grants; a `when` looks at the same facts. */
export type Reward =
  | { readonly grant: string }
  | { readonly all: readonly Reward[] }
  | { readonly when: Rule; readonly reward: Reward; readonly otherwise?: Reward };

const count = z.int().positive();

export const ruleSchema: z.ZodType<Rule> = z.lazy(() =>
  z.union([
    z.strictObject({ all: z.array(ruleSchema).min(1) }),
    z.strictObject({ any: z.array(ruleSchema).min(1) }),
    z.strictObject({ not: ruleSchema }),
    z.strictObject({ activated: z.literal(true) }),
    z.strictObject({
      visits: z.strictObject({
        atLeast: count,
        country: z.string().exactOptional(),
        category: z.string().exactOptional(),
      }),
    }),
    z.strictObject({ countries: z.strictObject({ atLeast: count }) }),
  ]),
);

export const rewardSchema: z.ZodType<Reward> = z.lazy(() =>
  z.union([
    z.strictObject({ grant: z.uuid() }),
    z.strictObject({ all: z.array(rewardSchema).min(1) }),
    z.strictObject({ when: ruleSchema, reward: rewardSchema, otherwise: rewardSchema.exactOptional() }),
  ]),
);

export function isSatisfied(rule: Rule, facts: Facts): boolean {
  if ('all' in rule) return rule.all.every((part) => isSatisfied(part, facts));
  if ('any' in rule) return rule.any.some((part) => isSatisfied(part, facts));
  if ('not' in rule) return !isSatisfied(rule.not, facts);
  if ('activated' in rule) return facts.isActivated;
  if ('countries' in rule) {
    return new Set(facts.travels.map(({ country }) => country)).size >= rule.countries.atLeast;
  }
  const { atLeast, country, category } = rule.visits;
  const visits = facts.travels.filter(
    (travel) =>
      (country === undefined || travel.country === country) &&
      (category === undefined || travel.category === category),
  );
  return visits.length >= atLeast;
}

/** The curios that a met challenge grants, each once. */
export function grantedBy(reward: Reward, facts: Facts): string[] {
  return [...new Set(granted(reward, facts))];
}

function granted(reward: Reward, facts: Facts): string[] {
  if ('grant' in reward) return [reward.grant];
  if ('all' in reward) return reward.all.flatMap((part) => granted(part, facts));
  if (isSatisfied(reward.when, facts)) return granted(reward.reward, facts);
  return reward.otherwise === undefined ? [] : granted(reward.otherwise, facts);
}

/** Every curio that the tree names, whether it is granted or not. */
export function namedIn(reward: Reward): string[] {
  if ('grant' in reward) return [reward.grant];
  if ('all' in reward) return reward.all.flatMap(namedIn);
  const otherwise = reward.otherwise === undefined ? [] : namedIn(reward.otherwise);
  return [...namedIn(reward.reward), ...otherwise];
}
