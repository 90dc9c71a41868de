import { createHash } from 'node:crypto';

const names = new Map<string, string>();

/** The name under which a connection prepares a statement: the same text, the same name, on every connection. */
export function statementName(text: string): string {
  let name = names.get(text);
  if (name === undefined) {
    name = `taskq_${createHash('sha256').update(text).digest('base64url').slice(0, 24)}`;
    names.set(text, name);
  }
  return name;
}
