// Tasks that nobody will try again by themselves: what kinds of them there are, and each.

import { ApiProblem, api } from '../api.js';
import { bounded, counted, firstLine, relativeTime, whole } from '../format.js';
import { follow, openBulk } from '../parts/bulk.js';
import { act, confirmDeed, refusal } from '../parts/deeds.js';
import { filterForm, filtersOf, knownQueues, knownTypes, pageLinks } from '../parts/filter.js';
import { emptyState, pageHead, pager, panel, queueLink, shown, table, taskLink } from '../parts/pieces.js';
import { Resource } from '../resource.js';
import { linkTo } from '../router.js';
import { h } from '../view.js';

/** @import { MakePage, Context } from '../context.d.ts' */
/** @import { Wire } from '../../contracts.ts' */
/** @import { DeadFilter } from '../api.js' */
/** @import { Place } from '../router.js' */
/** @typedef {{ operation: Wire<'Operation'> | undefined, problem: string }} Grouping */

const FILTERS = ['type', 'queue', 'error', 'older_than', 'cursor'];
const NO_ERROR = 'The worker died without a word';

/** @type {MakePage} */
export const deadLettersPage = (context, first) => {
  let place = first;
  let list = open();
  /** @type {Grouping | undefined} */
  let grouping;
  const leaving = new AbortController();
  const reload = () => {
    grouping = undefined;
    void list.reload();
  };
  function open() {
    const made = new Resource((signal) => api.dead(filtersOf(place, FILTERS), signal), context.update);
    void made.reload();
    return made;
  }
  const group = () => {
    grouping = { operation: undefined, problem: '' };
    void countGroups(filterOf(place), grouping, context.update, leaving.signal);
    context.update();
  };
  return {
    title: 'Dead letters',
    onLive: () => (place.query.has('cursor') ? undefined : list.refresh()),
    leave() {
      list.leave();
      leaving.abort();
    },
    moved(to) {
      place = to;
      list.leave();
      grouping = undefined;
      list = open();
    },
    view: () => [
      pageHead(
        'Dead letters',
        context.mayAct && (list.data?.tasks.length ?? 0) > 0 ? bulkButtons(place, reload) : null,
      ),
      filterForm(context, place, [
        { name: 'type', label: 'Type', suggestions: knownTypes(context) },
        { name: 'queue', label: 'Queue', suggestions: knownQueues(context) },
        { name: 'error', label: 'Error contains' },
        { name: 'older_than', label: 'Older than', placeholder: '36h' },
      ]),
      grouping === undefined ? null : groupPanel(place, grouping, reload),
      shown(list, 'dead letters', (data) =>
        listed(context, place, data, { reload, group: grouping === undefined ? group : undefined }),
      ),
    ],
  };
};

/** @param {Place} place @returns {DeadFilter} */
function filterOf({ query }) {
  const { type, queue, error, older_than: olderThan } = Object.fromEntries(query);
  const set = Object.entries({ type, queue, error, olderThan }).filter(
    ([, value]) => value !== undefined && value !== '',
  );
  return Object.fromEntries(set);
}

/** @param {DeadFilter} filter */
function filterWords({ type, queue, error, olderThan }) {
  const parts = [
    type === undefined ? '' : `of type ${type}`,
    queue === undefined ? '' : `in queue ${queue}`,
    error === undefined ? '' : `with “${error}” in the error`,
    olderThan === undefined ? '' : `older than ${olderThan}`,
  ].filter((part) => part !== '');
  return parts.length === 0 ? 'All dead letters.' : `Dead letters ${parts.join(', ')}.`;
}

/** @param {'replay' | 'drop'} kind @param {DeadFilter} filter @param {() => void} done */
function bulk(kind, filter, done) {
  openBulk({ kind, filter, words: filterWords(filter), done });
}

/** @param {Place} place @param {() => void} reload */
function bulkButtons(place, reload) {
  const filter = filterOf(place);
  const what = Object.keys(filter).length === 0 ? 'all' : 'these';
  return [
    h(
      'button',
      {
        type: 'button',
        key: 'drop',
        class: 'button-danger-plain',
        onclick: () => bulk('drop', filter, reload),
      },
      `Drop ${what}…`,
    ),
    h(
      'button',
      { type: 'button', key: 'replay', class: 'button-main', onclick: () => bulk('replay', filter, reload) },
      `Replay ${what}…`,
    ),
  ];
}

/** @param {DeadFilter} filter @param {Grouping} grouping @param {() => void} update @param {AbortSignal} signal */
async function countGroups(filter, grouping, update, signal) {
  try {
    const operation = await api.bulk('replay', { filter, dryRun: true });
    await follow(
      operation,
      (now) => {
        grouping.operation = now;
        update();
      },
      signal,
    );
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ApiProblem)) throw error;
    grouping.problem = refusal(error);
    update();
  }
}

/** @param {Place} place @param {Grouping} grouping @param {() => void} reload */
function groupPanel(place, { operation, problem }, reload) {
  if (problem !== '') return panel('Groups', {}, h('p', { class: 'bad', role: 'alert' }, problem));
  if (operation === undefined || operation.groups === null) {
    const words =
      operation?.state === 'failed'
        ? (operation.error ?? 'failed')
        : `Counting… ${whole(operation?.counts.matched ?? 0)} so far`;
    return panel('Groups', {}, h('p', { class: 'panel-text', role: 'status' }, words));
  }
  const { groups, others, counts } = operation;
  const base = filterOf(place);
  /** @param {Wire<'Operation'>['groups'] extends (infer Group)[] | null ? Group : never} group @returns {DeadFilter} */
  const narrowed = (group) => ({
    ...base,
    type: group.type,
    ...(group.error === null ? {} : { error: group.error }),
  });
  return panel(
    'Groups',
    {
      class: 'panel-flush',
      note: `${counted(counts.matched, 'dead letter')}${(others ?? 0) > 0 ? `, ${whole(others ?? 0)} of them of kinds not listed` : ''}`,
    },
    table({
      caption: 'Dead letters by type and error',
      rows: groups,
      rowKey: ({ type, error }) => `${type} ${error}`,
      columns: [
        { label: 'Count', class: 'number id', cell: ({ count }) => whole(count) },
        {
          label: 'Type',
          class: 'type',
          cell: ({ type }) => h('a', { class: 'name', dir: 'auto', href: linkTo(['dead'], { type }) }, type),
        },
        { label: 'Error', class: 'wide', cell: ({ error }) => errorLine(error) },
        {
          label: 'Actions',
          class: 'actions',
          // A filter can say what stands in an error, not that there is none.
          cell: (group) =>
            group.error === null
              ? null
              : [
                  h(
                    'button',
                    {
                      type: 'button',
                      class: 'button-small',
                      key: 'replay',
                      'aria-label': `Replay the group: ${group.type}, ${firstLine(group.error)}`,
                      onclick: () => bulk('replay', narrowed(group), reload),
                    },
                    'Replay…',
                  ),
                  h(
                    'button',
                    {
                      type: 'button',
                      class: 'button-small',
                      key: 'drop',
                      'aria-label': `Drop the group: ${group.type}, ${firstLine(group.error)}`,
                      onclick: () => bulk('drop', narrowed(group), reload),
                    },
                    'Drop…',
                  ),
                ],
        },
      ],
    }),
  );
}

/** @param {string | null} error */
function errorLine(error) {
  return error === null
    ? h('span', { class: 'faint' }, NO_ERROR)
    : h('span', { class: 'error-line', dir: 'auto' }, firstLine(error));
}

/** @param {Context} context @param {Place} place @param {Wire<'DeadPage'>} page @param {{ reload: () => void, group: (() => void) | undefined }} calls */
function listed(context, place, { tasks, next }, { reload, group }) {
  if (tasks.length === 0 && next === null) {
    return h(
      'div',
      { class: 'panel', key: 'list' },
      place.query.size === 0
        ? emptyState(
            'No dead letters',
            h('p', { class: 'faint' }, 'A task that has failed for the last time would wait here.'),
          )
        : emptyState('No dead letter matches', h('p', null, h('a', { href: linkTo(['dead']) }, 'Show all'))),
    );
  }
  const total = place.query.size === 0 ? context.live.latest?.totals.dead : undefined;
  return [
    panel(
      total === undefined
        ? 'Dead letters'
        : `${bounded(total)} dead ${total.count === 1 ? 'letter' : 'letters'}`,
      {
        key: 'list',
        class: 'panel-flush',
        note: 'newest first',
        // A dry run counts them, which looks at every dead letter: so when asked, not by itself.
        actions:
          group === undefined || !context.mayAct
            ? undefined
            : h(
                'button',
                { type: 'button', class: 'button-small', onclick: group },
                'Group by type and error',
              ),
      },
      table({
        caption: 'Dead letters',
        rows: tasks,
        rowKey: ({ id }) => id,
        columns: [
          { label: 'Task', class: 'number id', cell: ({ id }) => taskLink(id) },
          {
            label: 'Type',
            class: 'type',
            cell: ({ type }) => h('span', { class: 'name', dir: 'auto' }, type),
          },
          { label: 'Queue', class: 'short', cell: ({ queue }) => queueLink(queue) },
          { label: 'Attempts', class: 'number', cell: ({ attemptCount }) => attemptCount },
          {
            label: 'Last attempt',
            class: 'time',
            cell: ({ lastAttemptedAt }) => relativeTime(lastAttemptedAt),
          },
          { label: 'Error', class: 'wide', cell: ({ lastError }) => errorLine(lastError) },
          ...(context.mayAct
            ? [
                {
                  label: 'Actions',
                  class: 'actions',
                  cell: (/** @type {Wire<'DeadLetter'>} */ task) => rowActions(task, reload),
                },
              ]
            : []),
        ],
      }),
    ),
    pager(pageLinks(place, next)),
  ];
}

/** @param {Wire<'DeadLetter'>} task @param {() => void} reload */
function rowActions({ id, type, queue }, reload) {
  const replay = () =>
    void act(
      () => api.replay(queue, id),
      () => `Task ${id} is on its way again.`,
    ).then(reload);
  const drop = () =>
    confirmDeed({
      title: 'Drop this dead letter?',
      text: `Task ${id} (${type}) is deleted for good, with its payload and its errors.`,
      verb: 'Drop',
      isDangerous: true,
      deed: () =>
        void act(
          () => api.drop(queue, id),
          () => `Task ${id} is dropped.`,
        ).then(reload),
    });
  return [
    h(
      'button',
      {
        type: 'button',
        class: 'button-small',
        key: 'replay',
        'aria-label': `Replay task ${id}`,
        onclick: replay,
      },
      'Replay',
    ),
    h(
      'button',
      { type: 'button', class: 'button-small', key: 'drop', 'aria-label': `Drop task ${id}`, onclick: drop },
      'Drop…',
    ),
  ];
}
