// One dialog at a time, in the element that the page has for it. The browser keeps the focus inside, closes it with
// Escape, and gives the focus back to where it was.

import { h, render } from '../view.js';

/** @import { Node } from '../view.js' */

/** @typedef {{ title: string, body: () => Node, buttons: () => Node, closed?: () => void }} Content */

/** @type {Content | undefined} */
let current;

const element = () => /** @type {HTMLDialogElement} */ (document.getElementById('dialog'));

/** @param {Content} content @returns {() => void} draws it again, after what it shows has changed */
export function openDialog(content) {
  closeDialog();
  current = content;
  draw();
  const dialog = element();
  // Escape closes without a word to us; the event comes late, maybe when the next dialog is open already.
  dialog.onclose = () => {
    if (!dialog.open) finish();
  };
  dialog.showModal();
  return () => {
    if (current === content) draw();
  };
}

export function closeDialog() {
  if (element().open) element().close();
  finish();
}

function finish() {
  const content = current;
  current = undefined;
  render(element());
  content?.closed?.();
}

function draw() {
  if (current === undefined) return;
  const { title, body, buttons } = current;
  render(
    element(),
    h('h2', { id: 'dialog-title' }, title),
    h('div', { class: 'dialog-body' }, body()),
    h('div', { class: 'dialog-buttons' }, buttons()),
  );
}
