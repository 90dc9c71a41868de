import type { z } from 'zod';
import { TaskqError } from '../domain/errors.ts';
import type { Operator } from '../operator.ts';
import { API_PATH, noParams, noQuery } from './contracts.ts';
import type { ProblemCode } from './problems.ts';
import { type Method, ROUTES, type Route } from './routes.ts';
import type { AdminRole } from './sessions.ts';

/** What the function of an action works with. */
export interface AdminActionContext {
  /** Its deeds are audited as those of whoever asks: `operator.enqueue` is one. */
  readonly operator: Operator;
  /** `'api:anna'`, for an audit of the application's own. */
  readonly actor: string;
}

/** A route of the application's own beside those of the API. */
export interface AdminAction {
  readonly method: Method;
  /** Below the path of the API, such as `'/s3-orphan-sweep'`; parameters as `:name`, each in `params`. */
  readonly path: string;
  /** Its name in the OpenAPI document: letters and digits. */
  readonly name: string;
  readonly summary: string;
  /** Default: `'read'` for GET, else `'act'`. A GET must change nothing: it is not guarded against other sites. */
  readonly role?: AdminRole;
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  readonly answer: z.ZodType;
  // biome-ignore lint/suspicious/noExplicitAny: `adminAction` ties it to the schemas.
  readonly run: (context: AdminActionContext, input: any) => Promise<unknown>;
}

type Output<Schema> = Schema extends z.ZodType ? z.output<Schema> : undefined;

/**
 * Ties the function of an action to its schemas. It may throw an `AdminProblem`; a TaskqError that is the caller's fault
 * is answered with status 400. Query and parameters come as text: let the schemas be strict, and do the parsing.
 */
export function adminAction<
  Answer extends z.ZodType,
  Params extends z.ZodObject | undefined = undefined,
  Query extends z.ZodObject | undefined = undefined,
  Body extends z.ZodType | undefined = undefined,
>(
  of: Omit<AdminAction, 'params' | 'query' | 'body' | 'answer' | 'run'> & {
    readonly params?: Params;
    readonly query?: Query;
    readonly body?: Body;
    readonly answer: Answer;
    readonly run: (
      context: AdminActionContext,
      input: {
        readonly params: Output<Params>;
        readonly query: Output<Query>;
        readonly body: Output<Body>;
      },
    ) => Promise<z.output<Answer>>;
  },
): AdminAction {
  return of as AdminAction;
}

/** The server's own routes, which are not in the table. */
const RESERVED = ['/session', '/login', '/logout', '/events', '/openapi.json'];

/**
 * Actions as routes.
 * @throws TaskqError `CONFIG_INVALID` for one that is no route, or stands where another does
 */
export function actionRoutes(actions: readonly AdminAction[]): Route[] {
  const taken = new Set(ROUTES.map(placeOf));
  const names = new Set(ROUTES.map(({ name }) => name));
  return actions.map((action) => {
    const { method, path, name, role, params, query, body } = action;
    const problem = /^(\/(:\w+|[\w.~-]+))+$/.test(path)
      ? taken.has(placeOf(action)) || RESERVED.includes(path)
        ? 'another route stands there'
        : names.has(name)
          ? 'another route has its name'
          : undefined
      : `its path must begin with '/' and have no other signs than letters, digits, '-', '_', '.', '~'`;
    if (problem !== undefined) {
      throw new TaskqError('CONFIG_INVALID', `admin: action ${method} ${API_PATH}${path}: ${problem}`);
    }
    taken.add(placeOf(action));
    names.add(name);
    return {
      ...action,
      role: role ?? (method === 'GET' ? 'read' : 'act'),
      params: params ?? noParams,
      query: query ?? noQuery,
      body,
      problems: [] satisfies ProblemCode[],
    };
  });
}

/** Parameters of any name stand in each other's place. */
const placeOf = ({ method, path }: { readonly method: string; readonly path: string }): string =>
  `${method} ${path.replaceAll(/:\w+/g, ':')}`;
