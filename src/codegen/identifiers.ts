import { TaskqError } from '../domain/errors.ts';

/** Exports of the generated module; a type's function must not take their place. */
const TAKEN = new Set(['enqueueMany']);

/**
 * The name of a task type's own enqueue function: `explore_purge` → `enqueueExplorePurge`,
 * `cron:purge` → `enqueueCronPurge`. Letters and digits of every script are kept; the prefix makes reserved
 * words and leading digits harmless. A type of nothing else is spelt by code points (`😀` → `enqueueU1F600`).
 */
export function enqueueFunctionName(type: string): string {
  const name = `enqueue${pascalCase(type)}`;
  return TAKEN.has(name) ? `${name}Task` : name;
}

/** `item:parse` → `ItemParse`. Two spellings of one text in Unicode give one result. */
export function pascalCase(type: string): string {
  const words = type.normalize('NFC').match(/[\p{L}\p{Nl}\p{Nd}][\p{L}\p{Nl}\p{Nd}\p{Mn}\p{Mc}]*/gu) ?? [];
  const text = words.map(capitalise).join('').normalize('NFC');
  // An engine of an older Unicode version may not take every letter.
  if (text !== '' && isIdentifier(`x${text}`)) return text;
  return [...type]
    .map((symbol) => `U${(symbol.codePointAt(0) as number).toString(16).toUpperCase()}`)
    .join('');
}

/** @throws TaskqError `CODEGEN_FAILED` naming two types that ask for one function name, and their files */
export function checkFunctionNames(types: readonly { readonly type: string; readonly file: string }[]): void {
  const owners = new Map<string, { type: string; file: string }>();
  for (const { type, file } of types) {
    const name = enqueueFunctionName(type);
    const owner = owners.get(name);
    if (owner !== undefined) {
      throw new TaskqError(
        'CODEGEN_FAILED',
        `task types '${owner.type}' (${owner.file}) and '${type}' (${file}) would both be given the function ` +
          `${name}; rename one of them`,
      );
    }
    owners.set(name, { type, file });
  }
}

/** Whether `text` has the form of a JavaScript identifier; reserved words have it too. */
export function isIdentifier(text: string): boolean {
  return /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u.test(text);
}

function capitalise(word: string): string {
  const [first = '', ...rest] = [...word];
  // Not toLocaleUpperCase: in a Turkish locale it would name `item` otherwise than elsewhere.
  return first.toUpperCase() + rest.join('');
}
