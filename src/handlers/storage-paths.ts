// Where a stack's objects lie. Everything of a stack is below its prefix, so that one prefix delete takes it all.

/** The prefix of a stack's objects. It ends with a slash, or it would be that of its siblings too. */
export function stackPrefix(storageKey: string): string {
  return `stacks/${storageKey}/`;
}

/** The storage key that a stack's prefix names: the inverse of `stackPrefix`. */
export function storageKeyOf(prefix: string): string {
  return prefix.slice('stacks/'.length, -1);
}

/** The analysis that a run leaves. Each run has its own, so that a run which comes to nothing overwrites none. */
export function analysisKey(storageKey: string, runId: string): string {
  return `${stackPrefix(storageKey)}runs/${runId}/analysis.json`;
}
