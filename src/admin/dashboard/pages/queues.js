// Every queue, and the page of one.

import { api } from '../api.js';
import { bounded, counted, duration, fullTime } from '../format.js';
import { act, confirmDeed } from '../parts/deeds.js';
import { closeDialog, openDialog } from '../parts/dialog.js';
import { countCell, loading, pageHead, panel, shown, table } from '../parts/pieces.js';
import { queueTable } from '../parts/queue-table.js';
import { Resource } from '../resource.js';
import { linkTo } from '../router.js';
import { h } from '../view.js';

/** @import { MakePage } from '../context.d.ts' */
/** @import { Wire } from '../../contracts.ts' */

/** @type {MakePage} */
export const queuesPage = (context) => ({
  title: 'Queues',
  view() {
    const { latest } = context.live;
    if (latest === undefined) return [pageHead('Queues'), loading('the queues')];
    return [
      pageHead('Queues'),
      panel(
        counted(latest.queues.length, 'queue'),
        { class: 'panel-flush', key: 'list' },
        queueTable(context, latest.queues),
      ),
    ];
  },
});

/** @type {MakePage} */
export const queuePage = (context, { path }) => {
  const name = path[1] ?? '';
  const queue = new Resource((signal) => api.queue(name, signal), context.update);
  void queue.reload();
  const reload = () => void queue.reload();
  return {
    title: name,
    onLive: () => queue.refresh(),
    leave: () => queue.leave(),
    view: () => [
      h('p', { class: 'crumb' }, h('a', { href: linkTo(['queues']) }, 'Queues')),
      pageHead(name, queue.data === undefined || !context.mayAct ? null : actions(queue.data, reload)),
      shown(queue, 'the queue', detail),
    ],
  };
};

/** @param {Wire<'QueueDetail'>} queue @param {() => void} reload */
function actions(queue, reload) {
  const { queue: name, paused, weight } = queue;
  const pause = () =>
    confirmDeed({
      title: 'Pause this queue?',
      text: `No replica claims a task of ${name} until it is resumed. Tasks that run go on, and enqueueing goes on.`,
      verb: 'Pause',
      deed: () =>
        void act(
          () => api.pause(name),
          () => `${name} is paused.`,
        ).then(reload),
    });
  const resume = () =>
    void act(
      () => api.resume(name),
      () => `${name} goes on.`,
    ).then(reload);
  return [
    h(
      'button',
      { type: 'button', key: 'weight', onclick: () => askWeight(name, weight, reload) },
      'Set weight…',
    ),
    paused
      ? h('button', { type: 'button', key: 'resume', class: 'button-main', onclick: resume }, 'Resume')
      : h('button', { type: 'button', key: 'pause', onclick: pause }, 'Pause…'),
  ];
}

/** @param {string} name @param {number | null} weight @param {() => void} reload */
function askWeight(name, weight, reload) {
  let typed = weight === null ? '' : String(weight);
  const set = (/** @type {Event} */ event) => {
    event.preventDefault();
    closeDialog();
    const wanted = typed === '' ? null : Number(typed);
    const words =
      wanted === null ? `${name} has the weight of the configuration.` : `${name} has the weight ${wanted}.`;
    void act(
      () => api.weigh(name, wanted),
      () => words,
    ).then(reload);
  };
  openDialog({
    title: 'Weight',
    body: () =>
      h(
        'form',
        { id: 'weight-form', onsubmit: set },
        h('p', null, 'How often this queue is looked at first, against the weights of the others.'),
        h(
          'label',
          { class: 'field' },
          h('span', { class: 'field-label' }, 'From 1 to 1,000; empty: as the replicas are configured'),
          h('input', {
            type: 'number',
            min: '1',
            max: '1000',
            step: '1',
            value: typed,
            oninput: (/** @type {any} */ event) => {
              typed = event.target.value;
            },
          }),
        ),
      ),
    buttons: () => [
      h('button', { type: 'button', onclick: closeDialog, key: 'cancel' }, 'Cancel'),
      h('button', { type: 'submit', form: 'weight-form', class: 'button-main', key: 'set' }, 'Set weight'),
    ],
  });
}

/** @param {Wire<'QueueDetail'>} queue */
function detail(queue) {
  const { due, running, scheduled, retrying, dead, completed } = queue;
  return [
    queue.pausedAt === null
      ? null
      : h(
          'div',
          { class: 'notice notice-warn', key: 'paused' },
          h(
            'div',
            null,
            h('p', { class: 'notice-title' }, 'Paused'),
            h('p', null, 'Since ', fullTime(queue.pausedAt), '. Nothing of it is claimed.'),
          ),
        ),
    h(
      'dl',
      { class: 'tiles', key: 'tiles' },
      figure(
        'Due',
        bounded(due),
        due.count === 0 ? 'nothing waits' : `oldest for ${duration(queue.oldestDueSeconds * 1_000)}`,
      ),
      figure('Running', bounded(running), 'held by a worker'),
      figure('Scheduled', bounded(scheduled), 'for a later time'),
      figure('Retrying', bounded(retrying), 'backing off'),
      figure('Dead', bounded(dead), `${bounded(completed)} finished and kept`),
    ),
    panel('Task types', { class: 'panel-flush' }, typeTable(queue.types)),
  ];
}

/** @param {string} label @param {string} value @param {string} words */
function figure(label, value, words) {
  return h(
    'div',
    { class: 'tile', key: label },
    h('dt', null, label),
    h('dd', { class: 'tile-value', key: 'value' }, value),
    h('dd', { class: 'tile-foot', key: 'foot' }, words),
  );
}

/** @param {readonly Wire<'TypeCounts'>[]} types */
function typeTable(types) {
  if (types.length === 0)
    return h('div', { class: 'empty' }, h('p', { class: 'faint' }, 'No task is in this queue.'));
  /** @param {Wire<'TypeCounts'>} row @param {string} state */
  const list = ({ type, queue }, state) => linkTo(['tasks'], { type, queue, state });
  return table({
    caption: 'Task types',
    rows: types,
    rowKey: ({ type }) => type,
    columns: [
      {
        label: 'Type',
        cell: ({ type, queue }) =>
          h('a', { class: 'name', dir: 'auto', href: linkTo(['tasks'], { type, queue }) }, type),
      },
      { label: 'Due', class: 'number', cell: (row) => countCell(row.due, list(row, 'waiting')) },
      { label: 'Running', class: 'number', cell: (row) => countCell(row.running, list(row, 'running')) },
      {
        label: 'Scheduled',
        class: 'number',
        cell: (row) => countCell(row.scheduled, list(row, 'scheduled')),
      },
      { label: 'Retrying', class: 'number', cell: (row) => countCell(row.retrying, list(row, 'retrying')) },
      {
        label: 'Dead',
        class: 'number',
        cell: (row) => countCell(row.dead, linkTo(['dead'], { type: row.type, queue: row.queue })),
      },
    ],
  });
}
