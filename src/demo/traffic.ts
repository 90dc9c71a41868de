import { setTimeout as delay } from 'node:timers/promises';
import type { ChangeAnswer } from './service.ts';

/** How many clients send requests at once, and how long each pauses between two. */
const CLIENTS = 4;
const PAUSE_MS = 15;
/** The same requests in every run, as far as the answers are the same. */
const SEED = 20_261_130;

/** Requests so far. */
export interface TrafficCounts {
  sent: number;
  committed: number;
  rolledBack: number;
  /** Neither: the service failed. None is expected. */
  failed: number;
}

export interface TrafficOptions {
  readonly serviceUrl: string;
  readonly durationMs: number;
  /** Stacks to leave alone. */
  readonly except: ReadonlySet<string>;
  readonly signal: AbortSignal;
}

export interface Traffic {
  readonly counts: TrafficCounts;
  readonly done: Promise<void>;
}

interface KnownStack {
  readonly id: string;
  readonly name: string;
  readonly live: boolean;
}

/** Sends real requests that deploy, rename and delete stacks, some of them such as the service must refuse. */
export function startTraffic(options: TrafficOptions): Traffic {
  const counts: TrafficCounts = { sent: 0, committed: 0, rolledBack: 0, failed: 0 };
  return { counts, done: runClients(options, counts) };
}

async function runClients(options: TrafficOptions, counts: TrafficCounts): Promise<void> {
  const { serviceUrl, except, signal } = options;
  const response = await fetch(`${serviceUrl}/stacks`, { signal });
  const { stacks } = (await response.json()) as { stacks: KnownStack[] };
  const known = new Map(stacks.filter(({ id }) => !except.has(id)).map((stack) => [stack.id, stack]));
  const endsAt = performance.now() + options.durationMs;
  const clients = Array.from({ length: CLIENTS }, (_, at) =>
    runClient(options, counts, known, seededRandom(SEED + at), endsAt),
  );
  await Promise.all(clients);
  signal.throwIfAborted();
}

async function runClient(
  { serviceUrl, signal }: TrafficOptions,
  counts: TrafficCounts,
  known: Map<string, KnownStack>,
  random: () => number,
  endsAt: number,
): Promise<void> {
  while (performance.now() < endsAt && !signal.aborted) {
    const request = nextRequest([...known.values()], random, counts.sent);
    counts.sent += 1;
    const answer = await send(serviceUrl, request, signal);
    if (answer === undefined) counts.failed += 1;
    else if (answer.committed) counts.committed += 1;
    else counts.rolledBack += 1;
    if (answer?.stack !== undefined) known.set(answer.stack.id, answer.stack);
    await delay(PAUSE_MS);
  }
}

interface StackRequest {
  readonly method: 'POST' | 'DELETE';
  readonly path: string;
  readonly body?: object;
}

function nextRequest(stacks: readonly KnownStack[], random: () => number, count: number): StackRequest {
  const pick = () => stacks[Math.floor(random() * stacks.length)] as KnownStack;
  const stack = pick();
  const path = `/stacks/${stack.id}`;
  const dice = random();
  // A deleted stack is mostly deployed again: its purge then finds it live and leaves its rows alone.
  if (!stack.live && dice < 0.8) return { method: 'POST', path: `${path}/deploy`, body: { dependsOn: [] } };
  if (dice < 0.3) return { method: 'POST', path: `${path}/deploy`, body: {} };
  if (dice < 0.5) return { method: 'POST', path: `${path}/deploy`, body: { dependsOn: [pick().id] } };
  if (dice < 0.65)
    return { method: 'POST', path: `${path}/rename`, body: { name: `${stack.name}-${count}` } };
  // Refused when another live stack has the name.
  if (dice < 0.75) return { method: 'POST', path: `${path}/rename`, body: { name: pick().name } };
  // Refused when others depend on the stack.
  if (dice < 0.9) return { method: 'DELETE', path };
  if (dice < 0.95) return { method: 'DELETE', path: `${path}?force=true` };
  return { method: 'DELETE', path: `${path}?force=true&purge=inline` };
}

/** One request. Undefined: the service failed, or the demo is being stopped. */
async function send(
  serviceUrl: string,
  { method, path, body }: StackRequest,
  signal: AbortSignal,
): Promise<ChangeAnswer | undefined> {
  try {
    const init = body === undefined ? {} : { body: JSON.stringify(body) };
    const response = await fetch(serviceUrl + path, { method, signal, ...init });
    return response.status < 500 ? ((await response.json()) as ChangeAnswer) : undefined;
  } catch {
    return undefined;
  }
}

/** Mulberry32: a small generator, so that a run can be repeated. */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
