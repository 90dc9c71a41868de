import { duration } from '../format.js';
import { linkTo } from '../router.js';
import { h } from '../view.js';
import { countCell, emptyState, queueLink, table, tag } from './pieces.js';

/** @import { Wire } from '../../contracts.ts' */
/** @import { Context } from '../context.d.ts' */

/** @param {Context} context @param {readonly Wire<'QueueSnapshot'>[]} queues @param {(queue: Wire<'QueueSnapshot'>) => import('../view.js').Node} [actions] */
export function queueTable(context, queues, actions) {
  if (queues.length === 0)
    return emptyState('No queues yet', h('p', null, 'A queue is there once it has a task.'));
  /** @param {string} queue @param {string} state */
  const list = (queue, state) => linkTo(['tasks'], { queue, state });
  return table({
    caption: 'Queues',
    rows: queues,
    rowKey: ({ queue }) => queue,
    columns: [
      {
        label: 'Queue',
        cell: ({ queue, paused }) => [
          queueLink(queue),
          paused ? [' ', tag('paused', 'warn')] : null,
          unserved(context, queue) ? [' ', tag('no worker', 'warn')] : null,
        ],
      },
      { label: 'Due', class: 'number', cell: ({ queue, due }) => countCell(due, list(queue, 'waiting')) },
      {
        label: 'Oldest due',
        class: 'number',
        cell: ({ due, oldestDueSeconds }) => age(due.count, oldestDueSeconds),
      },
      {
        label: 'Running',
        class: 'number',
        cell: ({ queue, running }) => countCell(running, list(queue, 'running')),
      },
      {
        label: 'Scheduled',
        class: 'number',
        cell: ({ queue, scheduled }) => countCell(scheduled, list(queue, 'scheduled')),
      },
      {
        label: 'Retrying',
        class: 'number',
        cell: ({ queue, retrying }) => countCell(retrying, list(queue, 'retrying')),
      },
      {
        label: 'Dead',
        class: 'number',
        cell: ({ queue, dead }) => countCell(dead, linkTo(['dead'], { queue })),
      },
      {
        label: 'Weight',
        class: 'number',
        cell: ({ weight }) => weight ?? h('span', { class: 'faint' }, 'default'),
      },
      ...(actions === undefined ? [] : [{ label: 'Actions', class: 'actions', cell: actions }]),
    ],
  });
}

/** @param {Context} context @param {string} queue */
function unserved({ live }, queue) {
  return live.latest?.unserved.includes(queue) === true;
}

/** @param {number} due @param {number} seconds */
function age(due, seconds) {
  return due === 0 ? h('span', { class: 'faint' }, '–') : duration(seconds * 1_000);
}
