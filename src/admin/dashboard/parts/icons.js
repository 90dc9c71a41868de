// Sixteen pixels, one stroke. Decoration: whatever carries one also says it in words.

import { h } from '../view.js';

const PATHS = {
  overview: ['M2.5 13.5h11', 'M4 11V8', 'M8 11V4', 'M12 11V6.5'],
  queues: ['M2.5 4h11', 'M2.5 8h11', 'M2.5 12h7'],
  tasks: ['M2.5 3.5h11v9h-11z', 'M5.2 8.2l2 1.8 3.6-4'],
  dead: ['M8 2.5l6 10.5H2z', 'M8 6.5v3', 'M8 11.2v.1'],
  cron: ['M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z', 'M8 5v3.2l2.2 1.4'],
  replicas: ['M2.5 3h11v4h-11z', 'M2.5 9h11v4h-11z', 'M5 5v.1', 'M5 11v.1'],
  audit: ['M4 2.5h5.5L12 5v8.5H4z', 'M6 7h4', 'M6 10h4'],
  menu: ['M2.5 4.5h11', 'M2.5 8h11', 'M2.5 11.5h11'],
  light: [
    'M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z',
    'M8 1.5v1.3',
    'M8 13.2v1.3',
    'M1.5 8h1.3',
    'M13.2 8h1.3',
    'M3.4 3.4l.9.9',
    'M11.7 11.7l.9.9',
    'M3.4 12.6l.9-.9',
    'M11.7 4.3l.9-.9',
  ],
  dark: ['M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6z'],
};

/** @param {keyof typeof PATHS} name */
export function icon(name) {
  return h(
    'svg',
    { class: 'icon', viewBox: '0 0 16 16', 'aria-hidden': 'true', key: name },
    PATHS[name].map((d) => h('path', { d })),
  );
}
