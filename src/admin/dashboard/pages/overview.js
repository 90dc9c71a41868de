// How the queue is doing, at one look.

import { bounded, duration, rate, whole } from '../format.js';
import { chart } from '../parts/chart.js';
import { emptyState, loading, pageHead, panel } from '../parts/pieces.js';
import { queueTable } from '../parts/queue-table.js';
import { linkTo } from '../router.js';
import { h } from '../view.js';

/** @import { MakePage, Context } from '../context.d.ts' */
/** @import { Overview } from '../live.js' */
/** @import { Line } from '../parts/chart.js' */

/** So many lines can be told apart. */
const QUEUES_SHOWN = 4;
const COLORS = ['one', 'two', 'three', 'four'];

/** @type {MakePage} */
export const overviewPage = (context) => ({
  title: 'Overview',
  view() {
    const { latest } = context.live;
    if (latest === undefined) return [pageHead('Overview'), loading('the queue')];
    return [
      pageHead('Overview'),
      unservedNotice(latest),
      tiles(latest),
      hasNothing(latest) ? nothingYet() : null,
      h('div', { class: 'charts', key: 'charts' }, charts(context)),
      panel('Queues', { class: 'panel-flush' }, queueTable(context, latest.queues)),
    ];
  },
});

/** @param {Overview} overview */
function unservedNotice({ unserved }) {
  if (unserved.length === 0) return null;
  return h(
    'div',
    { class: 'notice notice-warn', key: 'unserved' },
    h(
      'div',
      null,
      h('p', { class: 'notice-title' }, 'Due tasks that nobody takes'),
      h(
        'p',
        null,
        'No live replica serves ',
        unserved.map((queue, index) => [
          index === 0 ? null : ', ',
          h('a', { href: linkTo(['queues', queue]), key: queue, dir: 'auto' }, queue),
        ]),
        '.',
      ),
    ),
  );
}

/** @param {Overview} overview */
function hasNothing({ totals, queues }) {
  return totals.pending.count + totals.dead.count + totals.completed.count === 0 && queues.length <= 1;
}

function nothingYet() {
  return h(
    'div',
    { class: 'panel', key: 'nothing' },
    emptyState(
      'No tasks yet',
      h('p', null, 'Enqueue one from the application, in the transaction it belongs to:'),
      h('pre', { class: 'code', tabindex: '0' }, "await enqueue(transaction, 'welcome_mail', { userId });"),
      h('p', { class: 'faint' }, 'It appears here within two seconds.'),
    ),
  );
}

/** @param {Overview} overview */
function tiles({ totals, slots, throughput }) {
  const share = slots.total === 0 ? 0 : slots.busy / slots.total;
  const failed = failuresOf(throughput.byOutcome);
  return h(
    'dl',
    { class: 'tiles', key: 'tiles' },
    tile(
      'Throughput',
      rate(throughput.perMinute),
      'runs a minute',
      failed > 0 ? `${rate(failed)} failing` : 'none failing',
    ),
    tile(
      'Slots busy',
      `${whole(slots.busy)} / ${whole(slots.total)}`,
      slots.replicas === 1 ? 'on 1 replica' : `on ${whole(slots.replicas)} replicas`,
      h(
        'span',
        { class: 'meter', 'aria-hidden': 'true' },
        h('span', { class: 'meter-done', css: { '--share': String(share) } }),
      ),
    ),
    tile('Backlog', bounded(totals.due), 'due now', `${bounded(totals.scheduled)} scheduled`),
    tile(
      'Oldest due',
      totals.due.count === 0 ? '–' : duration(totals.oldestDueSeconds * 1_000),
      totals.due.count === 0 ? 'nothing is due' : '',
      throughput.meanWaitMs === null ? 'no wait measured' : `mean wait ${duration(throughput.meanWaitMs)}`,
    ),
    tile(
      'Dead letters',
      totals.dead.count === 0
        ? '0'
        : h('a', { class: 'quiet', href: linkTo(['dead']) }, bounded(totals.dead)),
      totals.dead.count === 0 ? 'none' : 'wait for somebody',
      `${bounded(totals.retrying)} retrying`,
    ),
  );
}

/** @param {string} label @param {import('../view.js').Node} value @param {string} words @param {import('../view.js').Node} foot */
function tile(label, value, words, foot) {
  return h(
    'div',
    { class: 'tile', key: label },
    h('dt', null, label),
    h('dd', { class: 'tile-value', key: 'value' }, value, ' ', h('span', { class: 'tile-words' }, words)),
    h('dd', { class: 'tile-foot', key: 'foot' }, foot),
  );
}

/** @param {Overview['throughput']['byOutcome']} byOutcome */
function failuresOf(byOutcome) {
  return (byOutcome.failure ?? 0) + (byOutcome.timeout ?? 0) + (byOutcome.lost ?? 0);
}

/** @param {Context} context */
function charts({ live, update }) {
  const { history } = live;
  const times = history.map(({ at }) => Date.parse(at) / 1_000);
  const common = { times, changed: update };
  /** @param {(overview: Overview) => number | null} read */
  const values = (read) => history.map(read);
  const continued = values(({ throughput }) => throughput.byOutcome.continued ?? 0);
  /** @type {Line[]} */
  const outcomes = [
    {
      label: 'Succeeded',
      color: 'one',
      isFilled: true,
      values: values(({ throughput }) => throughput.byOutcome.success ?? 0),
    },
    ...(continued.some((value) => value !== 0) ? [{ label: 'Slices', color: 'two', values: continued }] : []),
    { label: 'Failed', color: 'bad', values: values(({ throughput }) => failuresOf(throughput.byOutcome)) },
  ];
  return [
    chart({ ...common, title: 'Throughput', unit: 'runs a minute', lines: outcomes, format: rate, least: 5 }),
    chart({
      ...common,
      title: 'Backlog',
      unit: 'due tasks by queue',
      lines: backlog(history),
      format: whole,
      least: 5,
    }),
    chart({
      ...common,
      title: 'Wait and run time',
      unit: 'mean of the newest runs',
      lines: [
        {
          label: 'Wait',
          color: 'one',
          isFilled: true,
          values: values(({ throughput }) => throughput.meanWaitMs),
        },
        { label: 'Run', color: 'two', values: values(({ throughput }) => throughput.meanRunMs) },
      ],
      format: duration,
      least: 20,
    }),
    chart({
      ...common,
      title: 'Slots',
      unit: 'of all live replicas',
      lines: [
        { label: 'Busy', color: 'one', isFilled: true, values: values(({ slots }) => slots.busy) },
        { label: 'All', color: 'plain', isDashed: true, values: values(({ slots }) => slots.total) },
      ],
      format: whole,
      least: 4,
    }),
  ];
}

/** The queues with most to do, and the others together. @param {readonly Overview[]} history @returns {Line[]} */
function backlog(history) {
  /** @type {Map<string, number>} */
  const peaks = new Map();
  for (const { queues } of history) {
    for (const { queue, due } of queues) peaks.set(queue, Math.max(peaks.get(queue) ?? 0, due.count));
  }
  const byPeak = [...peaks].sort(([left, most], [right, least]) => least - most || (left < right ? -1 : 1));
  const shown = byPeak.slice(0, QUEUES_SHOWN).map(([queue]) => queue);
  const sum = (/** @type {Overview} */ { queues }, /** @type {(queue: string) => boolean} */ isMeant) =>
    queues.reduce((total, { queue, due }) => (isMeant(queue) ? total + due.count : total), 0);
  const lines = shown.map((queue, index) => ({
    label: queue,
    color: COLORS[index] ?? 'plain',
    values: history.map((overview) => sum(overview, (name) => name === queue)),
  }));
  if (byPeak.length <= QUEUES_SHOWN) return lines;
  const others = history.map((overview) => sum(overview, (name) => !shown.includes(name)));
  if (others.every((count) => count === 0)) return lines;
  return [...lines, { label: 'all others', color: 'plain', values: others }];
}
