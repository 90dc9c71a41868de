import { connect, createServer, type NetConnectOpts, type Server, type Socket } from 'node:net';
import path from 'node:path';
import type { Connection } from './databases.ts';

/**
 * `pass` forwards · `latency` forwards late · `blackhole` swallows what arrives, as an unplugged cable does
 * until the connection is given up · `refuse` resets every new connection, and leaves those that exist alone.
 */
export type FaultMode = 'pass' | 'latency' | 'blackhole' | 'refuse';

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
}

/** A TCP port in front of a PostgreSQL server, over which a test breaks the network. */
export class FaultProxy {
  mode: FaultMode = 'pass';
  /** Each way, in `latency` mode. */
  latencyMs = 100;
  /** Connections accepted so far, refused ones not counted. */
  acceptedCount = 0;
  refusedCount = 0;
  readonly #target: Connection;
  readonly #pairs = new Set<Pair>();
  readonly #listener: Server;

  private constructor(target: Connection) {
    this.#target = target;
    this.#listener = createServer({ allowHalfOpen: true }, (client) => this.#accept(client));
  }

  static async start(target: Connection): Promise<FaultProxy> {
    const proxy = new FaultProxy(target);
    await new Promise<void>((resolve) => proxy.#listener.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get port(): number {
    return (this.#listener.address() as { port: number }).port;
  }

  /** The target's connection, by way of the proxy. */
  get connection(): Connection {
    return { ...this.#target, host: '127.0.0.1', port: this.port };
  }

  get url(): string {
    const { user, password, database } = this.#target;
    const secret = password === undefined ? '' : `:${encodeURIComponent(password)}`;
    return `postgres://${user}${secret}@127.0.0.1:${this.port}/${encodeURIComponent(database)}`;
  }

  get openCount(): number {
    return this.#pairs.size;
  }

  /** Ends every connection by a TCP reset, on both sides. */
  resetAll(): void {
    for (const { client, server } of this.#pairs) {
      client.resetAndDestroy();
      server.destroy();
    }
  }

  async stop(): Promise<void> {
    this.mode = 'refuse';
    this.resetAll();
    await new Promise((resolve) => this.#listener.close(resolve));
  }

  #accept(client: Socket): void {
    client.on('error', () => {});
    if (this.mode === 'refuse') {
      this.refusedCount += 1;
      client.resetAndDestroy();
      return;
    }
    this.acceptedCount += 1;
    const server = connect({ ...addressOf(this.#target), allowHalfOpen: true });
    const pair = { client, server };
    this.#pairs.add(pair);
    this.#forward(client, server);
    this.#forward(server, client);
    for (const socket of [client, server]) {
      socket.on('error', () => {});
      socket.on('close', () => {
        this.#pairs.delete(pair);
        client.destroy();
        server.destroy();
      });
    }
  }

  #forward(from: Socket, to: Socket): void {
    from.on('data', (bytes) => this.#deliver(() => to.write(bytes), to));
    from.on('end', () => this.#deliver(() => to.end(), to));
  }

  #deliver(send: () => void, to: Socket): void {
    // The end of a connection is lost in a black hole like everything else.
    if (this.mode === 'blackhole') return;
    const whenOpen = () => {
      if (!to.destroyed) send();
    };
    if (this.mode === 'latency') setTimeout(whenOpen, this.latencyMs).unref();
    else whenOpen();
  }
}

function addressOf({ host, port }: Connection): NetConnectOpts {
  return host.startsWith('/') ? { path: path.join(host, `.s.PGSQL.${port}`) } : { host, port };
}
