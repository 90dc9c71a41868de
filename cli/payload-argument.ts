import { TaskqError } from '../src/domain/errors.ts';
import { decodePayload } from '../src/domain/payload-codec.ts';

const TEXT_LITERAL = /"(?:[^"\\]|\\.)*"/g;
const WHOLE_NUMBER = /(?<![\w.])-?[0-9]{16,}(?![\w.])/g;

/**
 * The payload that JSON text stands for. Dates and bigints are written as they are stored, and as
 * `taskq dead show` prints them: `{"$taskq:date":"2027-01-31T09:00:00.000Z"}`, `{"$taskq:bigint":"123"}`.
 * @throws TaskqError `OPTION_INVALID` for text that is no JSON; `PAYLOAD_INVALID` for a number that would change
 */
export function parsePayload(text: string): unknown {
  refuseRoundedNumbers(text);
  try {
    return decodePayload(text);
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    throw new TaskqError('OPTION_INVALID', `the payload is not JSON: ${(cause as Error).message}`, {
      cause: error,
    });
  }
}

// JSON.parse rounds what a JavaScript number cannot hold, without a word.
function refuseRoundedNumbers(text: string): void {
  for (const [digits] of text.replaceAll(TEXT_LITERAL, '""').matchAll(WHOLE_NUMBER)) {
    if (BigInt(digits) === BigInt(Number(digits))) continue;
    throw new TaskqError(
      'PAYLOAD_INVALID',
      `the payload's ${digits} is more than a number can hold exactly; write {"$taskq:bigint":"${digits}"} for a bigint, or text`,
    );
  }
}
