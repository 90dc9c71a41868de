// The small pieces that every page is made of.

import { bounded, whole } from '../format.js';
import { linkTo } from '../router.js';
import { h } from '../view.js';

/** @import { Wire } from '../../contracts.ts' */
/** @import { ApiProblem } from '../api.js' */
/** @import { Node } from '../view.js' */

/** @typedef {'waiting' | 'running' | 'scheduled' | 'retrying' | 'dead' | 'completed'} State */

/** A state as a dot and a word: colour alone says nothing to some. @param {State | string} state */
export function stateBadge(state) {
  return h('span', { class: `badge badge-${state}` }, state);
}

/** @param {string} text @param {'plain' | 'warn' | 'bad' | 'good'} [kind] */
export function tag(text, kind = 'plain') {
  return h('span', { class: `tag tag-${kind}` }, text);
}

/** @param {string} title @param {...Node} actions */
export function pageHead(title, ...actions) {
  return h(
    'div',
    { class: 'page-head' },
    h('h1', { tabindex: '-1' }, title),
    h('div', { class: 'page-actions' }, actions),
  );
}

/** @param {string} title @param {{ actions?: Node, note?: Node, class?: string, key?: string }} options `key`: of a title that changes @param {...Node} children */
export function panel(title, { actions, note, class: name = '', key = title }, ...children) {
  return h(
    'section',
    { class: `panel ${name}`, key, 'aria-label': title },
    h(
      'div',
      { class: 'panel-head' },
      h('h2', null, title),
      note === undefined ? null : h('p', { class: 'panel-note' }, note),
      actions === undefined ? null : h('div', { class: 'panel-actions' }, actions),
    ),
    children,
  );
}

/**
 * @template Row
 * @typedef {{ label: string, cell: (row: Row) => Node, class?: string }} Column
 */

/**
 * A table; on a narrow page, each row is a card in which a cell stands beside its label.
 * @template Row
 * @param {{ caption: string, columns: readonly Column<Row>[], rows: readonly Row[], rowKey: (row: Row) => string }} options
 */
export function table({ caption, columns, rows, rowKey }) {
  return h(
    'div',
    { class: 'table-frame' },
    h(
      'table',
      null,
      h('caption', { class: 'unseen' }, caption),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          columns.map(({ label, class: name }) => h('th', { scope: 'col', class: name, key: label }, label)),
        ),
      ),
      h(
        'tbody',
        null,
        rows.map((row) =>
          h(
            'tr',
            { key: rowKey(row) },
            columns.map(({ label, cell, class: name }) =>
              h(
                'td',
                { class: name, 'data-label': label, key: label },
                h('div', { class: 'cell' }, cell(row)),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

/** @param {Wire<'Count'>} count @param {string} [href] A zero leads nowhere. */
export function countCell(count, href) {
  if (count.count === 0) return h('span', { class: 'faint' }, '0');
  return href === undefined
    ? h('span', null, bounded(count))
    : h('a', { class: 'quiet', href }, bounded(count));
}

/** @param {string} queue */
export function queueLink(queue) {
  return h('a', { class: 'name', href: linkTo(['queues', queue]), dir: 'auto' }, queue);
}

/** @param {string} id @param {string} [text] */
export function taskLink(id, text = id) {
  return h('a', { class: 'name', href: linkTo(['tasks', id]), dir: 'auto' }, text);
}

/** What stands where nothing is. @param {string} title @param {...Node} children */
export function emptyState(title, ...children) {
  return h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, title), children);
}

/** While the first answer is on its way. @param {string} what */
export function loading(what) {
  return h('div', { class: 'empty', role: 'status' }, h('p', { class: 'faint' }, `Reading ${what}…`));
}

/** Titles of what can go wrong, by the words of the one who looks. @param {ApiProblem} problem */
function problemTitle(problem) {
  if (problem.status === 0) return 'No connection to the server';
  if (problem.status === 403) return 'Not allowed';
  if (problem.status === 404) return 'Not found';
  if (problem.status === 429) return 'Too many requests';
  if (problem.status === 503) return 'The database does not answer';
  return problem.title;
}

/** @param {ApiProblem} problem @param {{ isStale?: boolean, retry?: () => void }} [options] */
export function problemNotice(problem, { isStale = false, retry } = {}) {
  const wait = problem.retryAfter === undefined ? '' : ` Try again in ${whole(problem.retryAfter)} s.`;
  return h(
    'div',
    { class: 'notice notice-bad', role: 'alert', key: 'problem' },
    h(
      'div',
      null,
      h('p', { class: 'notice-title' }, problemTitle(problem)),
      h('p', null, problem.detail, wait, isStale ? ' What you see is the last answer.' : ''),
    ),
    retry === undefined ? null : h('button', { type: 'button', onclick: retry }, 'Try again'),
  );
}

/**
 * What a resource holds, and what went wrong with it.
 * @template Data
 * @param {import('../resource.js').Resource<Data>} resource @param {string} what @param {(data: Data) => Node} show
 * @returns {Node}
 */
export function shown(resource, what, show) {
  const { data, problem } = resource;
  const retry = () => void resource.reload();
  if (data === undefined) return problem === undefined ? loading(what) : problemNotice(problem, { retry });
  return [problem === undefined ? null : problemNotice(problem, { isStale: true, retry }), show(data)];
}

/** @param {{ count: number, total: number | null, label: string }} options */
export function progressBar({ count, total, label }) {
  const share = total === null || total === 0 ? null : Math.min(1, count / total);
  const words = total === null ? whole(count) : `${whole(count)} of ${whole(total)}`;
  return h(
    'div',
    { class: 'progress' },
    h(
      'div',
      {
        class: share === null ? 'progress-track progress-open' : 'progress-track',
        role: 'progressbar',
        'aria-label': label,
        'aria-valuemin': '0',
        'aria-valuemax': '100',
        'aria-valuenow': share === null ? undefined : String(Math.floor(share * 100)),
        'aria-valuetext': words,
      },
      h('div', { class: 'progress-done', css: { '--share': share === null ? '0.3' : String(share) } }),
    ),
    h('span', { class: 'progress-words' }, words),
  );
}

/** The way to the next page of a list, and back to the first. @param {{ first: string | undefined, next: string | undefined }} links */
export function pager({ first, next }) {
  if (first === undefined && next === undefined) return null;
  return h(
    'nav',
    { class: 'pager', 'aria-label': 'More of the list' },
    first === undefined ? null : h('a', { class: 'button', href: first, key: 'first' }, 'First page'),
    next === undefined ? null : h('a', { class: 'button', href: next, key: 'next' }, 'Next page'),
  );
}

/**
 * A labelled field of a filter.
 * @param {string} label @param {Node} control
 */
export function field(label, control) {
  return h('label', { class: 'field', key: label }, h('span', { class: 'field-label' }, label), control);
}
