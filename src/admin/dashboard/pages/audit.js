// What operators have done.

import { api } from '../api.js';
import { fullTime } from '../format.js';
import { filterForm, filtersOf, pageLinks } from '../parts/filter.js';
import { emptyState, pageHead, pager, shown, table, taskLink } from '../parts/pieces.js';
import { Resource } from '../resource.js';
import { linkTo } from '../router.js';
import { h } from '../view.js';

/** @import { MakePage } from '../context.d.ts' */
/** @import { Wire } from '../../contracts.ts' */
/** @import { Place } from '../router.js' */

const FILTERS = ['actor', 'action', 'subject', 'cursor'];

/** @type {MakePage} */
export const auditPage = (context, first) => {
  let place = first;
  let list = open();
  function open() {
    const made = new Resource((signal) => api.audit(filtersOf(place, FILTERS), signal), context.update);
    void made.reload();
    return made;
  }
  return {
    title: 'Audit',
    onLive: () => (place.query.has('cursor') ? undefined : list.refresh()),
    leave: () => list.leave(),
    moved(to) {
      place = to;
      list.leave();
      list = open();
    },
    view: () => [
      pageHead('Audit'),
      filterForm(context, place, [
        { name: 'actor', label: 'Actor' },
        { name: 'action', label: 'Action', placeholder: 'dead.replay' },
        { name: 'subject', label: 'Subject' },
      ]),
      shown(list, 'the audit', (data) => listed(place, data)),
    ],
  };
};

/** @param {Place} place @param {Wire<'AuditPage'>} page */
function listed(place, { records, next }) {
  if (records.length === 0 && next === null) {
    return h(
      'div',
      { class: 'panel' },
      place.query.size === 0
        ? emptyState(
            'Nobody has done anything yet',
            h('p', { class: 'faint' }, 'Each deed of an operator stands here, kept for a year.'),
          )
        : emptyState('No deed matches', h('p', null, h('a', { href: linkTo(['audit']) }, 'Show all'))),
    );
  }
  return [
    h(
      'div',
      { class: 'panel panel-flush', key: 'list' },
      table({
        caption: 'Audit',
        rows: records,
        rowKey: ({ id }) => id,
        columns: [
          { label: 'When', class: 'time', cell: ({ at }) => fullTime(at) },
          { label: 'Actor', cell: ({ actor }) => h('span', { class: 'name strong', dir: 'auto' }, actor) },
          { label: 'Action', cell: ({ action }) => h('code', null, action) },
          { label: 'Subject', cell: subjectCell },
          { label: 'Detail', class: 'wide', cell: ({ detail }) => detailCell(detail) },
        ],
      }),
    ),
    pager(pageLinks(place, next)),
  ];
}

/** @param {Wire<'AuditRecord'>} record */
function subjectCell({ action, subject }) {
  if (subject === null) return h('span', { class: 'faint' }, '–');
  if (action.startsWith('queue.'))
    return h('a', { class: 'name', dir: 'auto', href: linkTo(['queues', subject]) }, subject);
  return /^[0-9]+$/.test(subject) ? taskLink(subject) : h('span', { class: 'name', dir: 'auto' }, subject);
}

/** @param {Record<string, unknown>} detail */
function detailCell(detail) {
  const pairs = Object.entries(detail);
  if (pairs.length === 0) return null;
  return h(
    'ul',
    { class: 'detail' },
    pairs.map(([name, value]) =>
      h(
        'li',
        { key: name, dir: 'auto' },
        h('span', { class: 'faint' }, name),
        ' ',
        typeof value === 'string' ? value : JSON.stringify(value),
      ),
    ),
  );
}
