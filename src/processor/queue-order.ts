import { QUEUE_WEIGHT_DEFAULT } from '../domain/limits.ts';
import type { Candidate } from '../statements/discover.ts';

// Which queue a slot takes its next task from. Inside a queue the oldest due comes first; between queues the weights
// decide. The draw is the smooth weighted round: every queue with candidates gains its weight, the richest is drawn and
// pays what all have gained together. So of any 10 draws at 6:3:1 six, three and one go to each, a queue of weight 1
// waits for a round of the others' and no longer, and a queue without candidates gains nothing: its share is the
// others', and it brings back no savings when it fills again.

/** The hints of one queue, oldest first. */
export interface QueueHints {
  readonly queue: string;
  readonly weight: number;
  readonly candidates: readonly Candidate[];
  /** There may be more where these came from. */
  readonly isCut: boolean;
}

export interface QueueOrderOptions {
  /** Queue → its weight, where nobody has given it another at run time. */
  readonly weights: ReadonlyMap<string, number>;
  /** Serves a queue only while those of a greater weight have nothing due. */
  readonly strict: boolean;
}

export class QueueOrder {
  readonly #options: QueueOrderOptions;
  readonly #credits = new Map<string, number>();

  constructor(options: QueueOrderOptions) {
    this.#options = options;
  }

  /** An operator's weight before the replica's own. */
  weightOf(queue: string, atRunTime: number | undefined): number {
    return atRunTime ?? this.#options.weights.get(queue) ?? QUEUE_WEIGHT_DEFAULT;
  }

  /**
   * The first candidates, `count` at the most, in the order in which slots are to take them. It ends before that where
   * a queue whose hints were cut is out of them: what follows would be the others' only because nobody has looked.
   */
  sequence(hints: readonly QueueHints[], count: number): Sequence {
    const [only] = hints;
    // The ordinary case, and each round asks twice: nothing is to be drawn.
    if (only !== undefined && hints.length === 1) {
      const candidates = only.candidates.slice(0, count);
      return { candidates, isCut: only.isCut && candidates.length < count };
    }
    const credits = new Map(this.#credits);
    const taken = new Map<string, number>();
    const candidates: Candidate[] = [];
    const leftOf = (of: QueueHints) => of.candidates.length - (taken.get(of.queue) ?? 0);
    while (candidates.length < count) {
      if (hints.some((each) => each.isCut && leftOf(each) === 0)) return { candidates, isCut: true };
      const contenders = this.#contenders(hints.filter((each) => leftOf(each) > 0));
      if (contenders.length === 0) break;
      const drawn = draw(contenders, credits);
      const place = taken.get(drawn.queue) ?? 0;
      candidates.push(drawn.candidates[place] as Candidate);
      taken.set(drawn.queue, place + 1);
    }
    return { candidates, isCut: false };
  }

  /** Keeps account of a task that was claimed, out of hints as they were. */
  charge(queue: string, hints: readonly QueueHints[]): void {
    if (hints.length === 1) {
      this.#credits.clear();
      return;
    }
    const contenders = this.#contenders(hints);
    for (const known of this.#credits.keys()) {
      if (!contenders.some((each) => each.queue === known)) this.#credits.delete(known);
    }
    if (contenders.some((each) => each.queue === queue)) pay(queue, contenders, this.#credits);
  }

  #contenders(hints: readonly QueueHints[]): readonly QueueHints[] {
    if (!this.#options.strict) return hints;
    const first = Math.max(...hints.map(({ weight }) => weight));
    // Of queues that stand equally high, each has its turn.
    return hints.filter(({ weight }) => weight === first);
  }
}

export interface Sequence {
  readonly candidates: readonly Candidate[];
  /** It ended because a queue has to be looked at again. */
  readonly isCut: boolean;
}

function draw(contenders: readonly QueueHints[], credits: Map<string, number>): QueueHints {
  const drawn = contenders.reduce((richest, each) =>
    richOf(each, credits) > richOf(richest, credits) ? each : richest,
  );
  pay(drawn.queue, contenders, credits);
  return drawn;
}

function richOf({ queue, weight }: QueueHints, credits: Map<string, number>): number {
  return (credits.get(queue) ?? 0) + weight;
}

function pay(queue: string, contenders: readonly QueueHints[], credits: Map<string, number>): void {
  const sum = contenders.reduce((total, { weight }) => total + weight, 0);
  // A queue whose candidates are always another replica's saves no more than one round, and one that is claimed for
  // want of the others owes no more.
  for (const each of contenders) credits.set(each.queue, Math.min(sum, richOf(each, credits)));
  credits.set(queue, Math.max(-sum, (credits.get(queue) ?? 0) - sum));
}
