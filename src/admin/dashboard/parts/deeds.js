// What an operator does, once: it is asked of the server, and what came of it is said.

import { ApiProblem } from '../api.js';
import { h } from '../view.js';
import { closeDialog, openDialog } from './dialog.js';
import { say } from './messages.js';

/**
 * Does it, says what came of it, and answers whether it worked.
 * @template Answer
 * @param {() => Promise<Answer>} deed @param {(answer: Answer) => string} words
 */
export async function act(deed, words) {
  try {
    say(words(await deed()));
    return true;
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    say(refusal(error), 'bad');
    return false;
  }
}

/** @param {ApiProblem} problem */
export function refusal(problem) {
  if (problem.status === 0) return 'The server does not answer: whether it was done is not known.';
  if (problem.status === 401) return 'Your session has ended. Log in again.';
  if (problem.status === 403) return `Not allowed: ${problem.detail}`;
  if (problem.status === 429 && problem.retryAfter !== undefined) {
    return `Too many requests. Try again in ${problem.retryAfter} s.`;
  }
  return problem.detail;
}

/**
 * Asks first.
 * @param {{ title: string, text: string, verb: string, isDangerous?: boolean, deed: () => void }} question
 */
export function confirmDeed({ title, text, verb, isDangerous = false, deed }) {
  openDialog({
    title,
    body: () => h('p', null, text),
    buttons: () => [
      h('button', { type: 'button', onclick: closeDialog, key: 'cancel' }, 'Cancel'),
      h(
        'button',
        {
          type: 'button',
          key: 'do',
          class: isDangerous ? 'button-danger' : 'button-main',
          onclick: () => {
            closeDialog();
            deed();
          },
        },
        verb,
      ),
    ],
  });
}
