import type pg from 'pg';
import { TaskqError } from '../domain/errors.ts';
import type { ConnectionSettings } from '../postgres/lanes.ts';

/**
 * Connection settings whose sessions begin with this search_path; whatever options they carried stay.
 * @throws TaskqError `CONFIG_INVALID` for a connection string that is no URL
 */
export function searchPathSettings(connection: ConnectionSettings, searchPath: string): pg.ClientConfig {
  const option = `-c search_path=${searchPath.replace(/[\\\s]/g, '\\$&')}`;
  const config = typeof connection === 'string' ? { connectionString: connection } : connection;
  const { connectionString, options } = config;
  // What stands in a connection string outweighs what stands beside it.
  return connectionString === undefined
    ? { ...config, options: joined(options, option) }
    : { ...config, connectionString: withOption(connectionString, option) };
}

// As text, not as a URL: pg takes forms that no URL parser does, such as an empty host for a socket.
function withOption(connectionString: string, option: string): string {
  if (!/^[a-z]+:/i.test(connectionString)) {
    throw new TaskqError(
      'CONFIG_INVALID',
      'the test clock: this connection string cannot carry a search_path; give a URL, or an object with host and database',
    );
  }
  const [address = '', query = ''] = split(connectionString);
  const parameters = new URLSearchParams(query);
  parameters.set('options', joined(parameters.get('options') ?? undefined, option));
  // A plus sign stands for a space in a form only, and not every reader of a URL takes it for one.
  return `${address}?${parameters.toString().replaceAll('+', '%20')}`;
}

function split(connectionString: string): [address: string, query: string] {
  const at = connectionString.indexOf('?');
  return at < 0 ? [connectionString, ''] : [connectionString.slice(0, at), connectionString.slice(at + 1)];
}

function joined(options: string | undefined, option: string): string {
  return options === undefined || options === '' ? option : `${options} ${option}`;
}
