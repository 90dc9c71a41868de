import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { runAs, type ServerUser } from './server-user.ts';

// The server is a child of a small shell that reads its standard input from us. When this process ends,
// however it ends, the kernel closes that pipe: the shell stops the server and removes what was to be
// thrown away. A signal handler or an exit hook here could not do it, since SIGKILL runs neither.
// The shell leads a session of its own, or Ctrl-C in a terminal would stop the server under a worker
// that is still settling its tasks.
const WATCHDOG = `
log=$1 at_death=$2 thrown_away=$3 also_thrown_away=$4
shift 4
exec 3<&0
"$@" </dev/null >>"$log" 2>&1 3<&- &
server=$!
(
  while read -r signal; do kill "-$signal" "$server"; done
  kill "-$at_death" "$server"
  exit 0
) <&3 3<&- >/dev/null 2>&1 &
watcher=$!
exec 3<&- </dev/null
trap 'kill -INT "$server"' HUP INT TERM
printf '%s\\n' "$server"
exec >&-
wait "$server"
status=$?
while kill -0 "$server" 2>/dev/null; do wait "$server"; status=$?; done
kill "$watcher" 2>/dev/null
# The watcher ends by itself only when our standard input did: nobody is left to clean up but us.
if wait "$watcher"; then rm -rf "$thrown_away" "$also_thrown_away"; fi
exit "$status"
`;

export type ServerSignal = 'INT' | 'QUIT' | 'KILL';

/** A running server. It does not keep this process alive, except while `exited` is awaited through `stop`. */
export interface ServerProcess {
  /** The process id of the server itself, not of its watchdog. */
  readonly pid: number;
  readonly exited: Promise<void>;
  hasExited(): boolean;
  signal(signal: ServerSignal): void;
  /** Whether the event loop waits for the server: while it starts and while it stops, not in between. */
  hold(held: boolean): void;
}

export async function spawnServer(options: {
  readonly command: readonly string[];
  readonly user: ServerUser | undefined;
  readonly log: string;
  /** What the server is sent when this process is gone, and what is removed after it. */
  readonly atDeath: { readonly signal: ServerSignal; readonly remove: readonly [string, string] };
}): Promise<ServerProcess> {
  const { command, user, log, atDeath } = options;
  const child = spawn(
    '/bin/sh',
    ['-c', WATCHDOG, 'taskq-watchdog', log, atDeath.signal, ...atDeath.remove, ...command],
    { ...runAs(user), detached: true, stdio: ['pipe', 'pipe', 'ignore'] },
  );
  let gone = false;
  const exited = new Promise<void>((resolve) => {
    child.once('close', () => {
      gone = true;
      resolve();
    });
  });
  child.stdout.resume();
  // Writing to a watchdog that is already gone is no error of ours: `exited` tells.
  child.stdin.on('error', () => {});
  const [line] = await Promise.race([
    once(child.stdout, 'data'),
    once(child, 'error').then(([error]) => Promise.reject(error)),
    exited.then(() => ['']),
  ]);
  return {
    pid: Number.parseInt(String(line), 10),
    exited,
    hasExited: () => gone,
    signal: (signal) => void child.stdin.write(`${signal}\n`),
    hold: (held) => {
      const pipes = [child.stdin as unknown as Socket, child.stdout as unknown as Socket];
      for (const part of [child, ...pipes]) held ? part.ref() : part.unref();
    },
  };
}
