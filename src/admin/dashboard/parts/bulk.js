// Replaying or dropping many dead letters: count them first, ask, then follow the operation to its end. It runs in the
// server, so a closed page does not stop it.

import { ApiProblem, api } from '../api.js';
import { counted, firstLine, whole } from '../format.js';
import { h } from '../view.js';
import { refusal } from './deeds.js';
import { closeDialog, openDialog } from './dialog.js';
import { progressBar } from './pieces.js';

/** @import { Wire } from '../../contracts.ts' */
/** @import { DeadFilter } from '../api.js' */
/** @typedef {Wire<'Operation'>} Operation */
/** @typedef {'counting' | 'counted' | 'running' | 'ended' | 'failed'} Phase */

/** News of an operation come with the stream. This often it is asked for, in case the stream is broken. */
const LOOK_MS = 1_500;

/** Resolves with the operation once it has ended. @param {Operation} operation @param {(operation: Operation) => void} seen @param {AbortSignal} signal */
export async function follow(operation, seen, signal) {
  let now = operation;
  seen(now);
  while (now.state === 'running' && !signal.aborted) {
    now = (await nextNews(now.id, signal)) ?? (await api.operation(now.id, signal));
    seen(now);
  }
  return now;
}

/** @param {string} id @param {AbortSignal} signal @returns {Promise<Operation | undefined>} */
function nextNews(id, signal) {
  const listening = new AbortController();
  return new Promise((/** @type {(operation: Operation | undefined) => void} */ resolve) => {
    const options = { signal: listening.signal };
    addEventListener(
      'taskq:operation',
      (/** @type {any} */ { detail }) => detail.id === id && resolve(detail),
      options,
    );
    signal.addEventListener('abort', () => resolve(undefined), options);
    setTimeout(resolve, LOOK_MS);
  }).finally(() => listening.abort());
}

/** @param {{ kind: 'replay' | 'drop', filter: DeadFilter, words: string, done: () => void }} options */
export function openBulk({ kind, filter, words, done }) {
  /** @type {{ phase: Phase, operation: Operation | undefined, matched: number, problem: string, typed: string }} */
  const state = { phase: 'counting', operation: undefined, matched: 0, problem: '', typed: '' };
  const leaving = new AbortController();
  let redraw = () => {};
  const draw = () => redraw();
  /** @param {boolean} dryRun */
  const start = async (dryRun) => {
    const operation = await api.bulk(kind, { filter, dryRun });
    const seen = (/** @type {Operation} */ now) => {
      state.operation = now;
      draw();
    };
    return follow(operation, seen, leaving.signal);
  };
  /** @param {Phase} phase @param {() => Promise<void>} work */
  const attempt = async (phase, work) => {
    state.phase = phase;
    draw();
    try {
      await work();
    } catch (error) {
      if (leaving.signal.aborted) return;
      if (!(error instanceof ApiProblem)) throw error;
      state.phase = 'failed';
      state.problem = refusal(error);
    }
    draw();
  };
  const run = () => attempt('running', async () => afterRun(state, await start(false)));
  redraw = openDialog({
    title: kind === 'replay' ? 'Replay dead letters' : 'Drop dead letters',
    body: () => [h('p', { class: 'faint', dir: 'auto' }, words), body(kind, state, draw)],
    buttons: () => buttons(kind, state, run),
    closed: () => {
      leaving.abort();
      done();
    },
  });
  void attempt('counting', async () => afterCount(state, await start(true)));
}

/** @param {{ phase: Phase, matched: number, problem: string }} state @param {Operation} operation */
function afterCount(state, operation) {
  state.phase = operation.state === 'done' ? 'counted' : 'failed';
  state.problem = operation.error ?? 'Counting was stopped.';
  state.matched = operation.counts.matched;
}

/** @param {{ phase: Phase, problem: string }} state @param {Operation} operation */
function afterRun(state, operation) {
  state.phase = operation.state === 'failed' ? 'failed' : 'ended';
  state.problem = operation.error ?? '';
}

/** @param {'replay' | 'drop'} kind @param {{ phase: Phase, operation: Operation | undefined, matched: number, problem: string, typed: string }} state @param {() => void} draw */
function body(kind, state, draw) {
  const { phase, operation, matched, problem } = state;
  const counts = operation?.counts;
  if (phase === 'failed') return h('p', { class: 'bad', role: 'alert', key: 'failed' }, problem);
  if (phase === 'counting') {
    return h('p', { role: 'status', key: 'counting' }, `Counting… ${whole(counts?.matched ?? 0)} so far`);
  }
  if (phase === 'running') {
    return progressBar({
      count: counts?.matched ?? 0,
      total: Math.max(matched, counts?.matched ?? 0),
      label: 'Progress',
    });
  }
  if (phase === 'ended') {
    const word = kind === 'replay' ? 'replayed' : 'dropped';
    return h(
      'div',
      { role: 'status', key: 'ended' },
      h(
        'p',
        { class: 'strong' },
        `${operation?.state === 'cancelled' ? 'Stopped: ' : ''}${whole(counts?.written ?? 0)} ${word}.`,
      ),
      leftOut(counts),
    );
  }
  if (matched === 0) return h('p', { key: 'none' }, 'No dead letter matches.');
  return h(
    'div',
    { key: 'counted' },
    preview(kind, operation),
    kind === 'drop' ? typedCheck(state, draw) : null,
  );
}

/** @param {'replay' | 'drop'} kind @param {Operation | undefined} operation */
function preview(kind, operation) {
  if (operation === undefined) return null;
  const { counts, groups, others } = operation;
  const what = counted(counts.matched, 'dead letter');
  const keyTaken = kind === 'replay' ? counts.keyTaken : 0;
  return [
    h(
      'p',
      { class: 'strong' },
      kind === 'replay' ? `${what} would be replayed.` : `${what} would be deleted for good.`,
    ),
    keyTaken > 0
      ? h('p', null, `Of these, ${whole(keyTaken)} cannot be: a live task has their unique key.`)
      : null,
    h(
      'ul',
      { class: 'groups', tabindex: '0', 'aria-label': 'By type and error' },
      (groups ?? []).map((group) =>
        h(
          'li',
          { key: `${group.type} ${group.error}` },
          h('span', { class: 'number' }, whole(group.count)),
          h(
            'span',
            { class: 'group-text', dir: 'auto' },
            h('b', null, group.type),
            ' ',
            firstLine(group.error ?? 'the worker died without a word'),
          ),
        ),
      ),
      (others ?? 0) > 0
        ? h(
            'li',
            { key: 'others' },
            h('span', { class: 'number' }, whole(others ?? 0)),
            h('span', { class: 'faint' }, 'of other kinds'),
          )
        : null,
    ),
  ];
}

/** @param {{ typed: string }} state @param {() => void} draw */
function typedCheck(state, draw) {
  return h(
    'label',
    { class: 'field' },
    h('span', { class: 'field-label' }, 'This cannot be undone. Type “drop” to go on.'),
    h('input', {
      type: 'text',
      autocomplete: 'off',
      value: state.typed,
      oninput: (/** @type {any} */ event) => {
        state.typed = event.target.value;
        draw();
      },
    }),
  );
}

/** @param {Operation['counts'] | undefined} counts */
function leftOut(counts) {
  if (counts === undefined) return null;
  const lines = [
    counts.keyTaken > 0 ? `${whole(counts.keyTaken)} left: a live task has their unique key.` : '',
    counts.changed > 0
      ? `${whole(counts.changed)} left: no dead letters any more, or held by somebody else.`
      : '',
  ];
  return lines.filter((line) => line !== '').map((line) => h('p', { key: line }, line));
}

/** @param {'replay' | 'drop'} kind @param {{ phase: Phase, operation: Operation | undefined, matched: number, typed: string }} state @param {() => void} run */
function buttons(kind, { phase, operation, matched, typed }, run) {
  const close = (/** @type {string} */ text) =>
    h('button', { type: 'button', onclick: closeDialog, key: 'close' }, text);
  if (phase === 'counted' && matched > 0) {
    const isDrop = kind === 'drop';
    return [
      close('Cancel'),
      h(
        'button',
        {
          type: 'button',
          key: 'run',
          class: isDrop ? 'button-danger' : 'button-main',
          disabled: isDrop && typed.trim().toLowerCase() !== 'drop',
          onclick: run,
        },
        `${isDrop ? 'Drop' : 'Replay'} ${whole(matched)}`,
      ),
    ];
  }
  if (phase === 'running' && operation !== undefined) {
    const stop = () => void api.cancelOperation(operation.id).catch(() => {});
    return [
      h('button', { type: 'button', onclick: stop, key: 'stop' }, 'Stop'),
      close('Go on in the background'),
    ];
  }
  return close('Close');
}
