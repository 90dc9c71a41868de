// The cron entries: when each fired last, when it fires next, and a firing by hand.

import { api } from '../api.js';
import { fullTime, relativeTime } from '../format.js';
import { act, confirmDeed } from '../parts/deeds.js';
import { emptyState, pageHead, queueLink, shown, table, tag, taskLink } from '../parts/pieces.js';
import { Resource } from '../resource.js';
import { h } from '../view.js';

/** @import { MakePage, Context } from '../context.d.ts' */
/** @import { Wire } from '../../contracts.ts' */

const REFRESH_MS = 15_000;
const NEXT_SHOWN = 3;

/** @type {MakePage} */
export const cronPage = (context) => {
  const list = new Resource((signal) => api.cron(signal), context.update);
  void list.reload();
  let readAtMs = performance.now();
  return {
    title: 'Cron',
    onLive() {
      if (performance.now() - readAtMs < REFRESH_MS) return;
      readAtMs = performance.now();
      list.refresh();
    },
    leave: () => list.leave(),
    view: () => [
      pageHead('Cron'),
      shown(list, 'the cron entries', (data) => listed(context, data, () => void list.reload())),
    ],
  };
};

/** @param {Context} context @param {Wire<'CronList'>} list @param {() => void} reload */
function listed(context, { hasList, entries }, reload) {
  if (entries.length === 0) {
    return h(
      'div',
      { class: 'panel' },
      emptyState(
        'No cron entries',
        h(
          'p',
          { class: 'faint' },
          hasList
            ? 'The list of this process is empty.'
            : 'This process was given no list, and none has fired yet.',
        ),
      ),
    );
  }
  return [
    hasList
      ? null
      : h(
          'div',
          { class: 'notice', key: 'no-list' },
          h('p', null, 'This process was given no list of entries: what you see has fired before.'),
        ),
    h('div', { class: 'panel panel-flush', key: 'list' }, entryTable(context, entries, reload)),
  ];
}

/** @param {Context} context @param {readonly Wire<'CronEntry'>[]} entries @param {() => void} reload */
function entryTable(context, entries, reload) {
  return table({
    caption: 'Cron entries',
    rows: entries,
    rowKey: ({ name }) => name,
    columns: [
      {
        label: 'Entry',
        cell: ({ name, isDefined }) => [
          h('span', { class: 'name strong', dir: 'auto' }, name),
          isDefined ? null : [' ', tag('not in the list')],
        ],
      },
      { label: 'Schedule', cell: ({ schedule }) => h('code', { dir: 'auto' }, schedule) },
      {
        label: 'Task',
        cell: ({ task }) => (task === null ? '–' : h('span', { class: 'name', dir: 'auto' }, task)),
      },
      { label: 'Queue', class: 'short', cell: ({ queue }) => (queue === null ? '–' : queueLink(queue)) },
      { label: 'Last tick', cell: ({ last }) => lastTick(last) },
      {
        label: 'Next',
        class: 'row',
        cell: ({ next }) =>
          next.length === 0
            ? '–'
            : h(
                'ul',
                { class: 'plain-list' },
                next.slice(0, NEXT_SHOWN).map((at) => h('li', { key: at }, fullTime(at))),
              ),
      },
      ...(context.mayAct
        ? [
            {
              label: 'Actions',
              class: 'actions',
              cell: (/** @type {Wire<'CronEntry'>} */ entry) =>
                entry.isDefined ? runNow(entry.name, reload) : null,
            },
          ]
        : []),
    ],
  });
}

/** @param {Wire<'CronEntry'>['last']} last */
function lastTick(last) {
  if (last === null) return h('span', { class: 'faint' }, 'none yet');
  return [
    relativeTime(last.tick),
    ' ',
    last.taskId === null
      ? h('span', { class: 'faint' }, last.outcome)
      : h('span', { class: 'faint' }, 'as ', taskLink(last.taskId)),
  ];
}

/** @param {string} name @param {() => void} reload */
function runNow(name, reload) {
  const run = () =>
    confirmDeed({
      title: 'Run this entry now?',
      text: `The task of ${name} is enqueued at once. Its next ticks stay as they are.`,
      verb: 'Run now',
      deed: () => void act(() => api.runCron(name), wordsOf).then(reload),
    });
  return h(
    'button',
    { type: 'button', class: 'button-small', 'aria-label': `Run now: ${name}`, onclick: run },
    'Run now…',
  );
}

/** @param {Wire<'Enqueued'>} answer */
function wordsOf({ id, status }) {
  return status === 'existing'
    ? `Task ${id} is in the way: nothing was enqueued.`
    : `Enqueued as task ${id}.`;
}
