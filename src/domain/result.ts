import { TaskqError } from './errors.ts';
import { RESULT_BYTES_MAX } from './limits.ts';
import { encodePayload, payloadBytes } from './payload-codec.ts';

/**
 * The text of what a handler gave `context.result`, as the record holds it; `decodePayload` gives the value back.
 * @throws TaskqError `PAYLOAD_UNSTORABLE`, `RESULT_TOO_LARGE`
 */
export function encodeResult(value: unknown, taskType: string): string {
  const subject = `result of ${taskType}`;
  const text = encoded(value, subject);
  const bytes = payloadBytes(text);
  if (bytes <= RESULT_BYTES_MAX) return text;
  throw tooLarge(subject, `${bytes} bytes`);
}

function encoded(value: unknown, subject: string): string {
  try {
    return encodePayload(value, subject);
  } catch (error) {
    const isTooLarge = error instanceof TaskqError && error.code === 'PAYLOAD_TOO_LARGE';
    throw isTooLarge ? tooLarge(subject, 'more than a payload may') : error;
  }
}

function tooLarge(subject: string, size: string): TaskqError {
  return new TaskqError(
    'RESULT_TOO_LARGE',
    `${subject}: it takes ${size}, the limit is ${RESULT_BYTES_MAX} bytes; store the data elsewhere and keep a reference`,
  );
}
