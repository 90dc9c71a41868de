// The filters of a list: they are the query of its address, so that a filtered list can be sent to somebody.

import { linkTo } from '../router.js';
import { h } from '../view.js';
import { field } from './pieces.js';

/** @import { Context } from '../context.d.ts' */
/** @import { Place } from '../router.js' */
/**
 * @typedef {{
 *   name: string, label: string, placeholder?: string, options?: readonly (readonly [value: string, text: string])[],
 *   suggestions?: readonly string[],
 * }} Field
 */

/**
 * @param {Context} context @param {Place} place @param {readonly Field[]} fields
 */
export function filterForm(context, place, fields) {
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const values = Object.fromEntries(
      [...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value).trim()]),
    );
    context.go(linkTo(place.path, values));
  };
  // A choice is made with the choosing; text with Enter.
  const choose = (/** @type {any} */ event) => event.currentTarget.form.requestSubmit();
  const isFiltered = fields.some(({ name }) => place.query.has(name));
  return h(
    'form',
    { class: 'filter', role: 'search', 'aria-label': 'Filter', onsubmit: submit },
    fields.map(({ name, label, placeholder, options, suggestions }) => {
      const value = place.query.get(name) ?? '';
      if (options !== undefined) {
        const choices = options.map(([choice, text]) => h('option', { value: choice, key: choice }, text));
        return field(label, h('select', { name, value, onchange: choose }, choices));
      }
      const list = suggestions === undefined ? undefined : `of-${name}`;
      return field(label, [
        h('input', {
          type: 'search',
          name,
          value,
          placeholder,
          list,
          autocomplete: 'off',
          spellcheck: 'false',
        }),
        list === undefined
          ? null
          : h(
              'datalist',
              { id: list },
              suggestions?.map((suggestion) => h('option', { value: suggestion, key: suggestion })),
            ),
      ]);
    }),
    h('button', { type: 'submit', key: 'submit' }, 'Filter'),
    isFiltered
      ? h('a', { class: 'button button-plain', href: linkTo(place.path), key: 'clear' }, 'Clear')
      : null,
  );
}

/** @param {Context} context */
export function knownTypes({ live }) {
  return [...new Set(live.latest?.types.map(({ type }) => type) ?? [])].sort();
}

/** @param {Context} context */
export function knownQueues({ live }) {
  return (live.latest?.queues.map(({ queue }) => queue) ?? []).sort();
}

/** The filters of a place that are set, by the names of the API. @param {Place} place @param {readonly string[]} names */
export function filtersOf({ query }, names) {
  return Object.fromEntries(names.map((name) => [name, query.get(name) ?? undefined]));
}

/** Links to the next page and back to the first. @param {Place} place @param {string | null} next */
export function pageLinks({ path, query }, next) {
  const filters = Object.fromEntries(query);
  const { cursor, ...first } = filters;
  return {
    first: cursor === undefined ? undefined : linkTo(path, first),
    next: next === null ? undefined : linkTo(path, { ...first, cursor: next }),
  };
}
