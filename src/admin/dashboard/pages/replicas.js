// The processes that run tasks: who is alive, and busy with what.

import { api } from '../api.js';
import { counted, duration, relativeTime, whole } from '../format.js';
import { emptyState, pageHead, shown, tag, taskLink } from '../parts/pieces.js';
import { Resource } from '../resource.js';
import { h } from '../view.js';

/** @import { MakePage } from '../context.d.ts' */
/** @import { Wire } from '../../contracts.ts' */
/** @import { Node } from '../view.js' */

/** @type {MakePage} */
export const replicasPage = (context) => {
  const list = new Resource((signal) => api.replicas(signal), context.update);
  void list.reload();
  return {
    title: 'Replicas',
    onLive: () => list.refresh(),
    leave: () => list.leave(),
    view: () => [
      pageHead('Replicas'),
      shown(list, 'the replicas', ({ replicas }) =>
        replicas.length === 0
          ? h(
              'div',
              { class: 'panel' },
              emptyState(
                'No replica is running',
                h('p', { class: 'faint' }, 'Start one with '),
                h('pre', { class: 'code', tabindex: '0' }, 'npx taskq work'),
              ),
            )
          : h('ul', { class: 'replicas' }, replicas.map(replicaCard)),
      ),
    ],
  };
};

/** @param {Wire<'Replica'>} replica */
function replicaCard(replica) {
  const {
    id,
    host,
    pid,
    version,
    roles,
    queues,
    slots,
    busy,
    overrun,
    running,
    clockOffsetMs,
    startedAt,
    seenAt,
    isAlive,
  } = replica;
  return h(
    'li',
    { key: id, class: isAlive ? 'panel replica' : 'panel replica replica-gone' },
    h(
      'div',
      { class: 'panel-head' },
      h('h2', { dir: 'auto' }, host, h('span', { class: 'faint' }, ` · ${pid}`)),
      isAlive ? tag('alive', 'good') : tag('not seen', 'bad'),
      overrun > 0 ? tag(`${counted(overrun, 'slot')} lost to a handler that does not stop`, 'bad') : null,
    ),
    h(
      'div',
      { class: 'slots', role: 'img', 'aria-label': `${whole(busy)} of ${counted(slots, 'slot')} busy` },
      Array.from({ length: Math.min(slots, SLOTS_DRAWN) }, (_, index) =>
        h('span', { key: String(index), class: index < busy ? 'slot slot-busy' : 'slot' }),
      ),
      h('span', { class: 'slots-words' }, `${whole(busy)} / ${whole(slots)}`),
    ),
    h(
      'dl',
      { class: 'facts facts-tight' },
      fact('Roles', roles.join(', ')),
      fact('Queues', queues === null ? 'every queue' : queues.join(', ')),
      fact('Version', version),
      fact('Started', relativeTime(startedAt)),
      fact('Seen', relativeTime(seenAt)),
      fact('Clock', clockOffsetMs === null ? '–' : offset(clockOffsetMs)),
    ),
    running.length === 0
      ? null
      : h(
          'ul',
          { class: 'running', 'aria-label': 'Running now' },
          running.map((task) =>
            h(
              'li',
              { key: task.id },
              taskLink(task.id, task.type),
              h('span', { class: 'faint' }, ` ${task.id}`),
            ),
          ),
        ),
  );
}

const SLOTS_DRAWN = 64;

/** @param {string} label @param {Node} value */
function fact(label, value) {
  return h('div', { key: label }, h('dt', null, label), h('dd', { dir: 'auto' }, value));
}

/** Against the clock of the database. @param {number} ms */
function offset(ms) {
  if (Math.abs(ms) < 1) return 'exact';
  return `${duration(Math.abs(ms))} ${ms > 0 ? 'ahead' : 'behind'}`;
}
