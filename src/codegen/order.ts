/** Orders text by its code units: the same on every machine, whatever its locale. */
export function byCodeUnit(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
