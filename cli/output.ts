/** A line of the result, on stdout. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** A line beside the result (progress, errors), on stderr, so that stdout stays fit for a pipe. */
export function say(line: string): void {
  process.stderr.write(`${line}\n`);
}
