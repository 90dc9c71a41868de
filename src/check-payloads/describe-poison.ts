import type { core } from 'zod';
import { TaskqError } from '../domain/errors.ts';
import type { PoisonStage } from '../domain/stored-payload.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';
import { causeChain, describeThrown } from '../domain/thrown.ts';
import { describePath } from './field-path.ts';

// Says what a row does not fit, for logs of a deploy that many people read: from the schema and never from the row.
// A schema's own messages are left out for that reason, since they may quote what they were given.

export interface PoisonDescription {
  /** Such as `payload.seats[3].name`. */
  readonly path: string;
  readonly expectation: string;
  /** Further problems of the same row. */
  readonly more: number;
}

/** Where a row is poison and what was expected there. */
export function describePoison(
  { type, payload, cursor }: Pick<TaskDefinition, 'type' | 'payload' | 'cursor'>,
  { stage, thrown }: { readonly stage: PoisonStage; readonly thrown: unknown },
): PoisonDescription {
  const root = stage === 'cursor' ? 'cursor' : 'payload';
  const only = (expectation: string) => ({ path: root, expectation, more: 0 });
  if (stage === 'upgrade') return only(describeUpgrade(type, thrown));
  const [issue, ...others] = issuesOf(thrown);
  const schema = stage === 'cursor' ? cursor : payload;
  if (issue === undefined || schema === undefined) {
    // Only what was stored in another form than this version writes fails with an error of taskq's own and no issue.
    const isMalformed = thrown instanceof TaskqError;
    return only(isMalformed ? 'expected values as taskq stores them' : `its schema threw ${nameOf(thrown)}`);
  }
  const { text, isSecret } = describePath(schema, issue.path, root);
  const expectation = isSecret && issue.code !== 'invalid_type' ? SECRET : expectationOf(issue);
  return { path: text, expectation, more: others.length };
}

const SECRET = 'it does not fit (a secret field: no more is said)';

/** The message of an upgrade's error holds the type and two numbers; what was thrown may quote the payload. */
function describeUpgrade(type: string, thrown: unknown): string {
  const [own, cause] = causeChain(thrown);
  const message = describeThrown(own instanceof Error ? own.message : own).message;
  const step = message.startsWith(`${type}: `) ? message.slice(type.length + 2) : message;
  return cause === undefined ? step : `${step} ${nameOf(cause)}`;
}

function nameOf(thrown: unknown): string {
  const { name } = describeThrown(thrown);
  return /^[A-Z]\w{0,60}$/.test(name) ? name : 'something';
}

/** Of the zod error that a failed parse has for its cause; by shape, since it may be of another copy of zod. */
function issuesOf(thrown: unknown): core.$ZodIssue[] {
  const cause = thrown instanceof Error ? (thrown.cause as { issues?: unknown } | undefined) : undefined;
  return Array.isArray(cause?.issues) ? (cause.issues as core.$ZodIssue[]) : [];
}

function expectationOf(issue: core.$ZodIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      return `expected ${issue.expected}`;
    case 'too_small':
      return `expected ${issue.origin} ${bound(issue, issue.minimum, '>')}`;
    case 'too_big':
      return `expected ${issue.origin} ${bound(issue, issue.maximum, '<')}`;
    case 'invalid_format':
      return `expected a string of the format ${issue.format}`;
    case 'not_multiple_of':
      return `expected a multiple of ${issue.divisor}`;
    case 'unrecognized_keys':
      return `expected no further field, found ${issue.keys.map((key) => `'${key}'`).join(', ')}`;
    case 'invalid_value':
      return `expected ${issue.values.map(literal).join(' or ')}`;
    case 'invalid_union':
      return `expected ${variants(issue)}`;
    case 'invalid_key':
      return `a key of the ${issue.origin} does not fit`;
    case 'invalid_element':
      return `an element of the ${issue.origin} does not fit`;
    case 'custom':
      return 'a check of its schema does not pass';
    default:
      return 'it does not fit';
  }
}

function bound(
  { origin, inclusive, exact }: { origin: string; inclusive?: boolean; exact?: boolean },
  limit: unknown,
  comparison: string,
): string {
  const of = SIZED[origin];
  const sign = exact ? 'exactly' : `${comparison}${inclusive === false ? '' : '='}`;
  return of === undefined ? `${sign} ${limit}` : `to have ${sign} ${limit} ${of}`;
}

const SIZED: Readonly<Record<string, string>> = {
  string: 'characters',
  array: 'items',
  set: 'items',
  map: 'entries',
  file: 'bytes',
};

function literal(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}

/** The types where the variants differ by nothing else, else how many there are. */
function variants({ errors }: core.$ZodIssueInvalidUnion): string {
  const types = errors.map((issues) => {
    const [issue] = issues;
    return issues.length === 1 && issue?.code === 'invalid_type' && issue.path.length === 0
      ? issue.expected
      : undefined;
  });
  if (types.length > 0 && !types.includes(undefined)) return [...new Set(types)].join(' or ');
  return errors.length === 0 ? 'one of the variants of its union' : `one of ${errors.length} variants`;
}
