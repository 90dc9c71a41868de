// One task: what it is, what it holds, and what became of it so far.

import { api } from '../api.js';
import { duration, exactTime, firstLine, fullTime, indented, relativeTime } from '../format.js';
import { act, confirmDeed } from '../parts/deeds.js';
import {
  emptyState,
  pageHead,
  panel,
  progressBar,
  queueLink,
  shown,
  stateBadge,
  tag,
} from '../parts/pieces.js';
import { Resource } from '../resource.js';
import { linkTo } from '../router.js';
import { h } from '../view.js';

/** @import { MakePage } from '../context.d.ts' */
/** @import { Wire } from '../../contracts.ts' */
/** @import { Node } from '../view.js' */
/** @typedef {Wire<'TaskDetail'>} Task */

/** @type {MakePage} */
export const taskPage = (context, { path }) => {
  const id = path[1] ?? '';
  const task = new Resource((signal) => api.task(id, signal), context.update);
  void task.reload();
  /** @type {Task | undefined} */
  let last;
  return {
    title: `Task ${id}`,
    onLive: () => (task.data?.state === 'completed' || isGone() ? undefined : task.refresh()),
    leave: () => task.leave(),
    view() {
      last = task.data ?? last;
      const isOver = isGone() && last !== undefined;
      return [
        h('p', { class: 'crumb' }, h('a', { href: linkTo(['tasks']) }, 'Tasks')),
        pageHead(
          last?.type ?? `Task ${id}`,
          last === undefined || isOver || !context.mayAct ? null : actions(last, () => void task.reload()),
        ),
        isOver
          ? [finished(), detail(/** @type {Task} */ (last), true)]
          : shown(task, 'the task', (data) => detail(data, false)),
      ];
    },
  };
  function isGone() {
    return task.problem?.status === 404;
  }
};

/** A task without a retention leaves nothing behind when it is done: that is no error, if it was here before. */
function finished() {
  return h(
    'div',
    { class: 'notice notice-good', role: 'status', key: 'finished' },
    h(
      'div',
      null,
      h('p', { class: 'notice-title' }, 'Finished, or dropped'),
      h('p', null, 'Its row is gone, and no record of it is kept. What you see is the last that was known.'),
    ),
  );
}

/** @param {Task} task @param {() => void} reload */
function actions({ id, queue, state }, reload) {
  if (state !== 'dead') return null;
  const replay = () =>
    void act(
      () => api.replay(queue, id),
      () => `Task ${id} is on its way again.`,
    ).then(reload);
  const drop = () =>
    confirmDeed({
      title: 'Drop this dead letter?',
      text: `Task ${id} is deleted for good, with its payload and its errors.`,
      verb: 'Drop',
      isDangerous: true,
      deed: () =>
        void act(
          () => api.drop(queue, id),
          () => `Task ${id} is dropped.`,
        ).then(reload),
    });
  return [
    h('button', { type: 'button', key: 'drop', class: 'button-danger-plain', onclick: drop }, 'Drop…'),
    h('button', { type: 'button', key: 'replay', class: 'button-main', onclick: replay }, 'Replay'),
  ];
}

/** @param {Task} task @param {boolean} isOver */
function detail(task, isOver) {
  const { progress, errors, payloadText, cursorText, resultText, headers } = task;
  const isBusy = progress !== null && task.state !== 'dead' && !isOver;
  return h(
    'div',
    { class: 'task', key: 'task' },
    h('div', { class: 'panel', key: 'facts' }, facts(task, isOver)),
    progress === null
      ? null
      : panel(
          'Progress',
          { note: isBusy ? 'slice by slice' : undefined },
          progressBar({ count: progress.done, total: progress.total, label: 'Progress of the slices' }),
        ),
    h(
      'div',
      { class: 'task-columns', key: 'columns' },
      h(
        'div',
        { class: 'task-main' },
        task.lastError === null || errors.length > 0 ? null : panel('Last error', {}, code(task.lastError)),
        panel('Attempts', { note: errors.length === 0 ? undefined : 'newest first' }, attempts(errors)),
        panel('Payload', { note: payloadNote(task) }, code(indented(payloadText))),
        cursorText === null
          ? null
          : panel('Cursor', { note: 'where the next slice begins' }, code(indented(cursorText))),
        resultText === null ? null : panel('Result', {}, code(indented(resultText))),
        Object.keys(headers).length === 0 ? null : panel('Headers', {}, headerList(headers)),
      ),
      h('div', { class: 'task-side' }, panel('Timeline', {}, timeline(task))),
    ),
  );
}

/** @param {Task} task @param {boolean} isOver */
function facts(task, isOver) {
  const { attemptCount, maxAttempts } = task;
  return h(
    'dl',
    { class: 'facts' },
    fact('Task', h('span', { class: 'number' }, task.id)),
    fact('State', isOver ? tag('gone') : stateBadge(task.state)),
    fact('Queue', queueLink(task.queue)),
    fact('Attempts', maxAttempts === null ? attemptCount : `${attemptCount} of ${maxAttempts}`),
    fact('Enqueued', fullTime(task.enqueuedAt)),
    // A dead letter has no next run: what its row says of one is of no use to anybody.
    task.state === 'dead' || task.runAt === null ? null : fact('Run at', fullTime(task.runAt)),
    task.completedAt === null ? null : fact('Completed', fullTime(task.completedAt)),
    fact('Last attempt', fullTime(task.lastAttemptedAt)),
    task.leaseExpiresAt === null ? null : fact('Lease ends', fullTime(task.leaseExpiresAt)),
    task.keepUntil === null ? null : fact('Kept until', fullTime(task.keepUntil)),
    task.traceId === null ? null : fact('Trace', h('code', { class: 'trace' }, task.traceId), 'fact-wide'),
  );
}

/** @param {string} label @param {Node} value @param {string} [name] */
function fact(label, value, name) {
  return h('div', { key: label, class: name }, h('dt', null, label), h('dd', null, value));
}

/** What no worker has registered is masked as a whole: nobody knows where its secrets are. */
const ALL_MASKED = '"•••"';

/** @param {Task} task */
function payloadNote({ payloadText, payloadRevision, type }) {
  return payloadText === ALL_MASKED
    ? `hidden: no worker has said yet which fields of ${type} are secret`
    : `revision ${payloadRevision}`;
}

/** Text of others, to the letter. @param {string} text */
function code(text) {
  return h('pre', { class: 'code', tabindex: '0', dir: 'auto' }, text);
}

/** @param {Task['errors']} errors */
function attempts(errors) {
  if (errors.length === 0) return emptyState('No attempt has failed');
  return h(
    'ol',
    { class: 'attempts' },
    [...errors]
      .reverse()
      .map(({ attempt, at, outcome, message, stack }) =>
        h(
          'li',
          { key: `${attempt} ${at}` },
          h(
            'p',
            { class: 'attempt-head' },
            h('span', { class: 'attempt-number' }, `Attempt ${attempt}`),
            tag(outcome, 'bad'),
            h('span', { class: 'faint' }, relativeTime(at)),
          ),
          h('p', { class: 'attempt-message', dir: 'auto' }, message),
          stack === null || stack === message
            ? null
            : h(
                'details',
                null,
                h('summary', null, 'Stack'),
                h('pre', { class: 'code', tabindex: '0' }, stack),
              ),
        ),
      ),
  );
}

/** @param {Record<string, string>} headers */
function headerList(headers) {
  return h(
    'dl',
    { class: 'pairs' },
    Object.entries(headers).map(([name, value]) =>
      h('div', { key: name }, h('dt', { dir: 'auto' }, name), h('dd', { dir: 'auto' }, value)),
    ),
  );
}

/** @type {Record<Task['timeline'][number]['kind'], string>} */
const EVENT_WORDS = {
  enqueued: 'Enqueued',
  attempt_failed: 'Attempt failed',
  claimed: 'Claimed by a worker',
  deed: 'Operator',
  completed: 'Completed',
  due: 'Due',
  lease_expires: 'Lease ends',
};

/** @param {Task} task */
function timeline({ timeline: events }) {
  return h(
    'ol',
    { class: 'timeline' },
    events.map(({ at, kind, attempt, text, actor }, index) => {
      const before = events[index - 1];
      const gapMs = before === undefined ? 0 : Date.parse(at) - Date.parse(before.at);
      const isAhead = Date.parse(at) > Date.now();
      return h(
        'li',
        {
          key: `${at} ${kind} ${attempt ?? ''}`,
          class: `event event-${kind}${isAhead ? ' event-ahead' : ''}`,
        },
        h(
          'p',
          { class: 'event-head' },
          kind === 'deed' ? `${text ?? ''}` : EVENT_WORDS[kind],
          attempt === null ? null : h('span', { class: 'faint' }, ` #${attempt}`),
        ),
        h(
          'p',
          { class: 'event-when' },
          exactTime(at),
          gapMs >= 1_000 ? h('span', { class: 'faint' }, ` +${duration(gapMs)}`) : null,
          actor === null ? null : h('span', { class: 'faint', dir: 'auto' }, ` by ${actor}`),
        ),
        text === null || kind === 'deed'
          ? null
          : h('p', { class: 'event-text', dir: 'auto' }, firstLine(text)),
      );
    }),
  );
}
