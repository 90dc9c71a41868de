// Short messages about what was just done. They go by themselves; what must be read stands on the page instead.

import { h, render } from '../view.js';

const SHOWN_MS = 6_000;

/** @type {{ key: string, text: string, kind: 'good' | 'bad' }[]} */
let messages = [];
let made = 0;

/** @param {string} text @param {'good' | 'bad'} [kind] */
export function say(text, kind = 'good') {
  made += 1;
  const message = { key: String(made), text, kind };
  messages = [...messages.slice(-2), message];
  draw();
  setTimeout(() => {
    messages = messages.filter((other) => other !== message);
    draw();
  }, SHOWN_MS);
}

function draw() {
  const container = /** @type {HTMLElement} */ (document.getElementById('messages'));
  render(
    container,
    messages.map(({ key, text, kind }) => h('p', { key, class: `message message-${kind}` }, text)),
  );
}
