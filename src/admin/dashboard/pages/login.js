// Who is asked for a token sees this and nothing else.

import { ApiProblem, api } from '../api.js';
import { refusal } from '../parts/deeds.js';
import { h } from '../view.js';

/** @import { Wire } from '../../contracts.ts' */

/**
 * @param {{ reason: string, update: () => void, entered: (session: Wire<'Session'>) => void }} options
 */
export function makeLogin({ reason, update, entered }) {
  let problem = '';
  let isBusy = false;

  /** @param {string} token */
  const logIn = async (token) => {
    isBusy = true;
    update();
    try {
      entered(await api.logIn(token));
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      problem =
        error.status === 401 ? 'This token is not valid. A one-time token works once.' : refusal(error);
    }
    isBusy = false;
    update();
  };

  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const token = String(new FormData(event.currentTarget).get('token') ?? '').trim();
    if (token !== '') void logIn(token);
  };

  return {
    logIn,
    view: () =>
      h(
        'main',
        { class: 'login', id: 'main' },
        h(
          'form',
          { class: 'panel login-card', onsubmit: submit },
          h('p', { class: 'brand' }, h('span', { class: 'brand-mark', 'aria-hidden': 'true' }), 'taskq'),
          h('h1', { tabindex: '-1' }, 'Log in'),
          reason === '' ? null : h('p', { class: 'faint', key: 'reason' }, reason),
          h(
            'label',
            { class: 'field' },
            h('span', { class: 'field-label' }, 'Access token'),
            h('input', {
              type: 'password',
              name: 'token',
              autocomplete: 'current-password',
              required: true,
              spellcheck: 'false',
              'aria-describedby': problem === '' ? undefined : 'login-problem',
            }),
          ),
          problem === ''
            ? null
            : h('p', { class: 'bad', role: 'alert', id: 'login-problem', key: 'problem' }, problem),
          h(
            'button',
            { type: 'submit', class: 'button-main', disabled: isBusy },
            isBusy ? 'Logging in…' : 'Log in',
          ),
        ),
      ),
  };
}
