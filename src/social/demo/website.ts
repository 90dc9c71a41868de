import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A website on this machine, for links to lead to. */
export interface Website {
  readonly url: string;
  /** Path → what it answers. Others are 404. */
  readonly pages: Map<string, Answer>;
  /** Paths asked for, in order. */
  readonly asked: string[];
  stop(): Promise<void>;
}

/** HTML, a status, or whatever is to be done with the response. */
type Answer = string | number | ((response: ServerResponse) => void);

export async function startWebsite(): Promise<Website> {
  const pages = new Map<string, Answer>();
  const asked: string[] = [];
  const server = createServer(({ url = '/' }, response) => {
    asked.push(url);
    const answer = pages.get(url) ?? 404;
    if (typeof answer === 'function') answer(response);
    else if (typeof answer === 'number') response.writeHead(answer).end();
    else response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(answer);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    pages,
    asked,
    async stop() {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
