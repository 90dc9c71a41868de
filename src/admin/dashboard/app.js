// The page: who is logged in, which page is shown, and the frame around it. Whatever changes asks for a drawing, and
// one drawing answers all that asked in the same moment.

import { ApiProblem, api } from './api.js';
import { bounded } from './format.js';
import { Live } from './live.js';
import { auditPage } from './pages/audit.js';
import { cronPage } from './pages/cron.js';
import { deadLettersPage } from './pages/dead-letters.js';
import { makeLogin } from './pages/login.js';
import { overviewPage } from './pages/overview.js';
import { queuePage, queuesPage } from './pages/queues.js';
import { replicasPage } from './pages/replicas.js';
import { taskPage } from './pages/task.js';
import { tasksPage } from './pages/tasks.js';
import { closeDialog } from './parts/dialog.js';
import { icon } from './parts/icons.js';
import { say } from './parts/messages.js';
import { emptyState, pageHead, problemNotice } from './parts/pieces.js';
import { linkTo, placeOf } from './router.js';
import { h, render } from './view.js';

/** @import { Wire } from '../contracts.ts' */
/** @import { Context, MakePage, Page } from './context.d.ts' */
/** @import { Place } from './router.js' */

/** By the first part of the address, and whether another follows. @type {Record<string, MakePage>} */
const PAGES = {
  '': overviewPage,
  queues: queuesPage,
  'queues/': queuePage,
  tasks: tasksPage,
  'tasks/': taskPage,
  dead: deadLettersPage,
  cron: cronPage,
  replicas: replicasPage,
  audit: auditPage,
};

const NAVIGATION = /** @type {const} */ ([
  ['', 'Overview', 'overview'],
  ['queues', 'Queues', 'queues'],
  ['tasks', 'Tasks', 'tasks'],
  ['dead', 'Dead letters', 'dead'],
  ['cron', 'Cron', 'cron'],
  ['replicas', 'Replicas', 'replicas'],
  ['audit', 'Audit', 'audit'],
]);

/** Times such as '3 s ago' grow older also when nothing comes. */
const REDRAW_MS = 5_000;

const root = /** @type {HTMLElement} */ (document.getElementById('page'));
/** @type {Wire<'Session'> | undefined} */
let session;
/** @type {ReturnType<typeof makeLogin> | undefined} */
let login;
/** @type {ApiProblem | undefined} */
let startProblem;
/** @type {Page | undefined} */
let page;
let place = placeOf(location.hash);
let isMenuOpen = false;
let isDrawingAsked = false;
let lastTakenAt = '';

const live = new Live(() => {
  if (live.state === 'lost' && session !== undefined) void checkSession();
  const at = live.latest?.at ?? '';
  if (at !== lastTakenAt) page?.onLive?.();
  lastTakenAt = at;
  update();
});

function update() {
  if (isDrawingAsked) return;
  isDrawingAsked = true;
  queueMicrotask(() => {
    isDrawingAsked = false;
    draw();
  });
}

function draw() {
  if (login !== undefined) render(root, login.view());
  else if (session !== undefined && page !== undefined) render(root, frame(session, page));
  else if (startProblem !== undefined) {
    render(
      root,
      h(
        'main',
        { class: 'login', id: 'main' },
        h('h1', { class: 'unseen' }, 'taskq'),
        problemNotice(startProblem, { retry: () => void start() }),
      ),
    );
  } else
    render(
      root,
      h(
        'main',
        { class: 'login', id: 'main' },
        h('h1', { class: 'unseen' }, 'taskq'),
        h('p', { class: 'faint' }, 'Connecting…'),
      ),
    );
}

/** @param {Wire<'Session'>} known @param {Page} shownPage */
function frame(known, shownPage) {
  return [
    h('a', { class: 'skip', href: '#main', key: 'skip', onclick: skip }, 'Skip to the content'),
    h(
      'header',
      { class: isMenuOpen ? 'bar bar-open' : 'bar', key: 'bar' },
      h(
        'a',
        { class: 'brand', href: linkTo([]) },
        h('span', { class: 'brand-mark', 'aria-hidden': 'true' }),
        'taskq',
      ),
      h(
        'button',
        {
          type: 'button',
          class: 'menu-button button-icon',
          'aria-expanded': String(isMenuOpen),
          'aria-controls': 'menu',
          'aria-label': 'Menu',
          onclick: () => {
            isMenuOpen = !isMenuOpen;
            update();
          },
        },
        icon('menu'),
      ),
      h('div', { class: 'menu', id: 'menu' }, navigation(), foot(known)),
    ),
    h(
      'main',
      { id: 'main', tabindex: '-1', key: 'main' },
      connectionNotice(),
      h('div', { class: 'page', key: placeKey(place) }, shownPage.view()),
    ),
  ];
}

function navigation() {
  const dead = live.latest?.totals.dead;
  return h(
    'nav',
    { 'aria-label': 'Pages' },
    h(
      'ul',
      null,
      NAVIGATION.map(([name, label, picture]) =>
        h(
          'li',
          { key: label },
          h(
            'a',
            {
              href: linkTo(name === '' ? [] : [name]),
              'aria-current': place.path[0] === name ? 'page' : undefined,
            },
            icon(picture),
            h('span', { class: 'nav-label' }, label),
            name === 'dead' && dead !== undefined && dead.count > 0
              ? h('span', { class: 'nav-count' }, bounded(dead))
              : null,
          ),
        ),
      ),
    ),
  );
}

/** @type {Record<typeof live.state, string>} */
const LIVE_WORDS = { connecting: 'Connecting…', open: 'Live', lost: 'Reconnecting…', hidden: 'Paused' };

/** @param {Wire<'Session'>} known */
function foot({ actor, role, isSession }) {
  const isDark = isDarkNow();
  return h(
    'div',
    { class: 'foot' },
    h(
      'p',
      { class: `live live-${live.trouble === undefined ? live.state : 'lost'}` },
      live.trouble === undefined ? LIVE_WORDS[live.state] : 'No data',
    ),
    h(
      'p',
      { class: 'who', title: actor },
      h('span', { class: 'faint' }, 'as '),
      h('span', { dir: 'auto' }, actor),
      role === 'read' ? h('span', { class: 'faint' }, ' · may only read') : null,
    ),
    h(
      'div',
      { class: 'foot-buttons' },
      h(
        'button',
        {
          type: 'button',
          class: 'button-icon',
          'aria-label': isDark ? 'Use light colours' : 'Use dark colours',
          onclick: switchTheme,
        },
        icon(isDark ? 'light' : 'dark'),
      ),
      isSession
        ? h('button', { type: 'button', class: 'button-plain', onclick: logOut, key: 'out' }, 'Log out')
        : null,
    ),
  );
}

function connectionNotice() {
  if (live.trouble !== undefined) {
    return h(
      'div',
      { class: 'notice notice-bad', role: 'alert', key: 'trouble' },
      h(
        'div',
        null,
        h('p', { class: 'notice-title' }, 'The database does not answer'),
        h('p', null, `${live.trouble} What you see is the last answer; it goes on by itself.`),
      ),
    );
  }
  if (live.state !== 'lost') return null;
  return h(
    'div',
    { class: 'notice notice-warn', role: 'status', key: 'lost' },
    h(
      'div',
      null,
      h('p', { class: 'notice-title' }, 'The connection is lost'),
      h('p', null, 'Trying again. What you see is the last answer.'),
    ),
  );
}

/** @type {Page} */
const nowhere = {
  title: 'Not found',
  view: () => [
    pageHead('Not found'),
    h(
      'div',
      { class: 'panel' },
      emptyState('There is no such page', h('p', null, h('a', { href: linkTo([]) }, 'To the overview'))),
    ),
  ],
};

/** @param {Place} of */
function placeKey({ path }) {
  return path.join('/');
}

function showPlace() {
  if (session === undefined) return;
  const before = placeKey(place);
  place = placeOf(location.hash);
  if (page?.moved !== undefined && placeKey(place) === before) {
    page.moved(place);
    update();
    return;
  }
  page?.leave?.();
  closeDialog();
  isMenuOpen = false;
  const { path } = place;
  const make = PAGES[path.length > 1 ? `${path[0]}/` : (path[0] ?? '')];
  page = path.length > 2 || make === undefined ? nowhere : make(contextOf(session), place);
  document.title = `${page.title} · taskq`;
  draw();
  // As after a click on a link to another document: readers hear the new page's name, and Tab starts there.
  scrollTo(0, 0);
  root.querySelector('h1')?.focus({ preventScroll: true });
}

/** @param {Wire<'Session'>} known @returns {Context} */
function contextOf(known) {
  return {
    live,
    mayAct: known.role === 'act',
    update,
    go(hash) {
      location.hash = hash;
    },
  };
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

function isDarkNow() {
  const chosen = document.documentElement.dataset['theme'];
  return chosen === undefined ? matchMedia('(prefers-color-scheme: dark)').matches : chosen === 'dark';
}

function switchTheme() {
  const next = isDarkNow() ? 'light' : 'dark';
  document.documentElement.dataset['theme'] = next;
  localStorage.setItem('taskq-theme', next);
  update();
}

async function logOut() {
  try {
    await api.logOut();
    leave('');
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    say(error.detail, 'bad');
  }
}

/** @param {string} reason */
function leave(reason) {
  live.close('connecting');
  live.history = [];
  page?.leave?.();
  closeDialog();
  page = undefined;
  session = undefined;
  login = makeLogin({ reason, update, entered: enter });
  document.title = 'Log in · taskq';
  draw();
  root.querySelector('input')?.focus();
}

/** @param {Wire<'Session'>} entered */
function enter(entered) {
  session = entered;
  login = undefined;
  startProblem = undefined;
  live.open();
  showPlace();
}

/** A stream that ends may have ended with the session; whoever has none any more is asked to log in. */
async function checkSession() {
  try {
    await api.session();
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 401 && session !== undefined)
      leave('Your session has ended.');
  }
}

/** A one-time token in the address is used up at once, and taken out of the address and the history. */
function takeToken() {
  const { path, query } = placeOf(location.hash);
  const token = query.get('token');
  if (path[0] !== 'login') return undefined;
  history.replaceState(null, '', linkTo([]));
  return token ?? undefined;
}

async function start() {
  const token = takeToken();
  if (token !== undefined) {
    leave('');
    await login?.logIn(token);
    return;
  }
  try {
    enter(await api.session());
  } catch (error) {
    if (!(error instanceof ApiProblem)) throw error;
    if (error.status === 401) return leave('');
    startProblem = error;
    update();
  }
}

addEventListener('hashchange', () => {
  if (placeOf(location.hash).path[0] === 'login') void start();
  else showPlace();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', update);
setInterval(() => {
  if (!document.hidden) update();
}, REDRAW_MS);
addEventListener('taskq:unauthenticated', () => {
  if (session !== undefined) leave('Your session has ended.');
});
draw();
void start();
