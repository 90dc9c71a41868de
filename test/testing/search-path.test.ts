import pg from 'pg';
import { expect, test } from 'vitest';
import { searchPathSettings } from '../../src/testing/search-path.ts';

const PATH = 'taskq_test_clock, pg_catalog, "my app", public';
const OPTION = '-c search_path=taskq_test_clock,\\ pg_catalog,\\ "my\\ app",\\ public';

/** What a connection with these settings would send at its start. */
function optionsOf(settings: pg.ClientConfig): unknown {
  const { connectionParameters } = new pg.Client(settings) as unknown as {
    connectionParameters: pg.ClientConfig;
  };
  const { options, host, database } = connectionParameters;
  return { options, host, database };
}

test('connection settings of every form carry the search_path, and keep what they had', () => {
  const tcp = { host: 'db.test', database: 'app_test' };
  const socket = { host: '/run/postgresql', database: 'app_test' };
  const earlier = '-c statement_timeout=5s';
  const both = `${earlier} ${OPTION}`;

  expect(optionsOf(searchPathSettings(tcp, PATH))).toEqual({ ...tcp, options: OPTION });
  expect(optionsOf(searchPathSettings({ ...tcp, options: earlier }, PATH))).toEqual({
    ...tcp,
    options: both,
  });
  for (const [url, where, options] of [
    ['postgres://u:p@db.test/app_test', tcp, OPTION],
    ['postgresql://u@db.test/app_test?application_name=x', tcp, OPTION],
    [`postgres://db.test/app_test?options=${encodeURIComponent(earlier)}`, tcp, both],
    ['postgres://u@/app_test?host=/run/postgresql', socket, OPTION],
    ['postgres://%2Frun%2Fpostgresql/app_test', socket, OPTION],
    ['socket:/run/postgresql?db=app_test', socket, OPTION],
  ] as const) {
    expect(optionsOf(searchPathSettings(url, PATH)), url).toEqual({ ...where, options });
    expect(optionsOf(searchPathSettings({ connectionString: url }, PATH)), url).toEqual({
      ...where,
      options,
    });
  }
});

test('a connection string that is no URL is refused, with the way out', () => {
  expect(() => searchPathSettings('/run/postgresql app_test', PATH)).toThrow(/give a URL, or an object/);
});
