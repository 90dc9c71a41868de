// Tasks by state, type and queue; finished ones are kept apart, and so is their list.

import { api } from '../api.js';
import { duration, firstLine, relativeTime, whole } from '../format.js';
import { filterForm, filtersOf, knownQueues, knownTypes, pageLinks } from '../parts/filter.js';
import {
  emptyState,
  pageHead,
  pager,
  queueLink,
  shown,
  stateBadge,
  table,
  taskLink,
} from '../parts/pieces.js';
import { Resource } from '../resource.js';
import { linkTo } from '../router.js';
import { h } from '../view.js';

/** @import { MakePage } from '../context.d.ts' */
/** @import { Wire } from '../../contracts.ts' */
/** @import { Place } from '../router.js' */

const FILTERS = ['state', 'type', 'queue', 'cursor'];
const STATES = /** @type {const} */ ([
  ['', 'Not finished'],
  ['waiting', 'Waiting'],
  ['running', 'Running'],
  ['scheduled', 'Scheduled'],
  ['retrying', 'Retrying'],
  ['dead', 'Dead'],
  ['completed', 'Completed'],
]);

/** @typedef {{ tasks: readonly Wire<'TaskSummary'>[] | undefined, completed: readonly Wire<'CompletedTask'>[] | undefined, next: string | null }} List */

/** @type {MakePage} */
export const tasksPage = (context, first) => {
  let place = first;
  let list = open();
  function open() {
    const { state, ...query } = filtersOf(place, FILTERS);
    /** @type {Resource<List>} */
    const made = new Resource(async (signal) => {
      if (state === 'completed') {
        const { tasks, next } = await api.completed(query, signal);
        return { tasks: undefined, completed: tasks, next };
      }
      const { tasks, next } = await api.tasks({ ...query, state }, signal);
      return { tasks, completed: undefined, next };
    }, context.update);
    void made.reload();
    return made;
  }
  return {
    title: 'Tasks',
    // Of the first page only: what came before another one moves it, and a reader loses the place.
    onLive: () => (place.query.has('cursor') ? undefined : list.refresh()),
    leave: () => list.leave(),
    moved(to) {
      place = to;
      list.leave();
      list = open();
    },
    view: () => [
      pageHead('Tasks'),
      filterForm(context, place, [
        { name: 'state', label: 'State', options: STATES },
        { name: 'type', label: 'Type', suggestions: knownTypes(context) },
        { name: 'queue', label: 'Queue', suggestions: knownQueues(context) },
      ]),
      shown(list, 'tasks', (data) => listed(place, data)),
    ],
  };
};

/** @param {Place} place @param {List} list */
function listed(place, { tasks, completed, next }) {
  const isEmpty = (tasks ?? completed ?? []).length === 0;
  if (isEmpty && next === null) return h('div', { class: 'panel' }, noTasks(place));
  return [
    h(
      'div',
      { class: 'panel panel-flush', key: 'list' },
      isEmpty
        ? emptyState(
            'None among these rows',
            h('p', { class: 'faint' }, 'The filter matches rarely: look further.'),
          )
        : null,
      tasks === undefined || tasks.length === 0 ? null : taskTable(tasks),
      completed === undefined || completed.length === 0 ? null : completedTable(completed),
    ),
    pager(pageLinks(place, next)),
  ];
}

/** @param {Place} place */
function noTasks({ query }) {
  if (query.get('state') === 'completed') {
    return emptyState(
      'No finished tasks',
      h('p', { class: 'faint' }, 'Only tasks with a retention leave a record.'),
    );
  }
  if (query.size > 0) {
    return emptyState('No task matches', h('p', null, h('a', { href: linkTo(['tasks']) }, 'Show all')));
  }
  return emptyState(
    'Nothing to do',
    h('p', { class: 'faint' }, 'Every task is done. New ones appear here by themselves.'),
  );
}

/** @param {readonly Wire<'TaskSummary'>[]} tasks */
function taskTable(tasks) {
  return table({
    caption: 'Tasks',
    rows: tasks,
    rowKey: ({ id }) => id,
    columns: [
      { label: 'Task', class: 'number id', cell: ({ id }) => taskLink(id) },
      { label: 'Type', class: 'type', cell: ({ type }) => h('span', { class: 'name', dir: 'auto' }, type) },
      { label: 'State', class: 'short', cell: ({ state }) => stateBadge(state) },
      { label: 'Queue', class: 'short', cell: ({ queue }) => queueLink(queue) },
      {
        label: 'Attempts',
        class: 'number',
        cell: ({ attemptCount, maxAttempts }) => `${attemptCount} / ${maxAttempts}`,
      },
      { label: 'Run at', class: 'time', cell: ({ runAt }) => relativeTime(runAt) },
      { label: 'Note', class: 'wide', cell: note },
    ],
  });
}

/** @param {Wire<'TaskSummary'>} task */
function note({ progress, lastError }) {
  if (progress !== null) {
    const { done, total } = progress;
    return h('span', null, total === null ? `${whole(done)} done` : `${whole(done)} of ${whole(total)} done`);
  }
  return lastError === null ? null : h('span', { class: 'error-line', dir: 'auto' }, firstLine(lastError));
}

/** @param {readonly Wire<'CompletedTask'>[]} tasks */
function completedTable(tasks) {
  return table({
    caption: 'Finished tasks',
    rows: tasks,
    rowKey: ({ id }) => id,
    columns: [
      { label: 'Task', class: 'number id', cell: ({ id }) => taskLink(id) },
      { label: 'Type', class: 'type', cell: ({ type }) => h('span', { class: 'name', dir: 'auto' }, type) },
      { label: 'State', class: 'short', cell: () => stateBadge('completed') },
      { label: 'Queue', class: 'short', cell: ({ queue }) => queueLink(queue) },
      { label: 'Attempts', class: 'number', cell: ({ attemptCount }) => attemptCount },
      { label: 'Completed', class: 'time', cell: ({ completedAt }) => relativeTime(completedAt) },
      {
        label: 'Took',
        class: 'number',
        cell: ({ startedAt, completedAt }) =>
          startedAt === null ? '–' : duration(Date.parse(completedAt) - Date.parse(startedAt)),
      },
      { label: 'Kept until', class: 'time', cell: ({ keepUntil }) => relativeTime(keepUntil) },
    ],
  });
}
