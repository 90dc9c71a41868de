import { z } from 'zod';
import { SkipRetry } from '../index.ts';
import type { ObjectStore } from './object-store.ts';

const analysisSchema = z.object({
  dependsOn: z.array(z.uuid()),
  resources: z.array(z.object({ path: z.string(), value: z.string() })),
});

/** What a run finds: the stacks it read from, and the resources it has made. */
export type Analysis = z.infer<typeof analysisSchema>;

/**
 * The analysis that a run left; undefined when it is not there.
 * @throws SkipRetry for an object that is no analysis: reading it again would not make it one
 */
export async function readAnalysis(
  objects: ObjectStore,
  key: string,
  signal: AbortSignal,
): Promise<Analysis | undefined> {
  const text = await objects.read(key, signal);
  if (text === undefined) return undefined;
  const { success, data, error } = analysisSchema.safeParse(parsedJson(text));
  if (!success) throw new SkipRetry(`${key} is no analysis: ${z.prettifyError(error)}`);
  return data;
}

export function writeAnalysis(
  objects: ObjectStore,
  key: string,
  analysis: Analysis,
  signal: AbortSignal,
): Promise<void> {
  return objects.write(key, JSON.stringify(analysis), signal);
}

/** Text that is no JSON becomes undefined, which the schema refuses. */
function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
