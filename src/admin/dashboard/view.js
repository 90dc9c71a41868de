// Describes the page as a tree and changes the document to match, node by node: what stays keeps its focus, its
// selection and its scroll position, although the page is described anew with every event.
//
// Everything the queue holds (payloads, errors, names) was written by somebody else. It gets into the document as the
// value of a text node or of an attribute, never as markup: no function here takes HTML.

/**
 * @typedef {{ readonly tag: string, readonly props: Props, readonly children: readonly Leaf[] }} Branch
 * @typedef {Branch | string} Leaf
 * @typedef {Leaf | number | false | null | undefined} Single
 * @typedef {Single | readonly Node[]} Node
 * @typedef {Record<string, unknown>} Props
 */

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'path']);
/** Set as properties: the attribute of the same name is only what they begin with. */
const PROPERTIES = new Set(['value', 'checked', 'disabled', 'selected', 'open', 'hidden']);
/** What would run as code, or pull in a document. */
const REFUSED = new Set(['innerHTML', 'outerHTML', 'srcdoc', 'style', 'src', 'action', 'formaction']);

/** What an element was last given, to take away what it is not given again. @type {WeakMap<Element, Props>} */
const given = new WeakMap();

/**
 * An element to be. Of the props, `on…` are handlers, `key` recognises it among its siblings, `css` sets custom
 * properties, `ref` is called with the element each time, and with `opaque` its children belong to somebody else.
 * @param {string} tag
 * @param {Props | null} props
 * @param {...Node} children
 * @returns {Branch}
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: leaves(children) };
}

/**
 * Makes the children of `container` match.
 * @param {Element} container
 * @param {...Node} children
 */
export function render(container, ...children) {
  patchChildren(container, leaves(children));
}

/** @param {readonly Node[]} nodes @returns {Leaf[]} */
function leaves(nodes) {
  /** @type {Leaf[]} */
  const flat = [];
  for (const node of nodes) {
    if (node === null || node === undefined || node === false || node === '') continue;
    if (Array.isArray(node)) flat.push(...leaves(node));
    else if (typeof node === 'number') flat.push(String(node));
    else flat.push(/** @type {Leaf} */ (node));
  }
  return flat;
}

/** @param {Element} parent @param {readonly Leaf[]} wanted */
function patchChildren(parent, wanted) {
  const present = [...parent.childNodes];
  /** @type {Map<string, ChildNode[]>} */
  const byName = new Map();
  for (const node of present) {
    const name = nameOfNode(node);
    byName.set(name, [...(byName.get(name) ?? []), node]);
  }
  const matched = wanted.map((leaf) => byName.get(nameOf(leaf))?.shift());
  const kept = new Set(matched);
  // First away with what goes, or everything behind it would be moved, and what is moved loses the focus.
  for (const node of present) if (!kept.has(node)) node.remove();
  let place = parent.firstChild;
  for (const [index, leaf] of wanted.entries()) {
    const found = matched[index];
    const node = found ?? create(leaf);
    if (found !== undefined) update(found, leaf);
    if (node === place) place = node.nextSibling;
    else parent.insertBefore(node, place);
  }
}

/** @param {Leaf} leaf */
function nameOf(leaf) {
  return typeof leaf === 'string' ? '#text' : `${leaf.tag} ${leaf.props['key'] ?? ''}`;
}

/** @param {ChildNode} node */
function nameOfNode(node) {
  if (!(node instanceof Element)) return '#text';
  return `${node.localName} ${given.get(node)?.['key'] ?? ''}`;
}

/** @param {Leaf} leaf @returns {ChildNode} */
function create(leaf) {
  if (typeof leaf === 'string') return document.createTextNode(leaf);
  const element = SVG_TAGS.has(leaf.tag)
    ? document.createElementNS(SVG, leaf.tag)
    : document.createElement(leaf.tag);
  given.set(element, {});
  apply(element, leaf);
  return element;
}

/** @param {ChildNode} node @param {Leaf} leaf */
function update(node, leaf) {
  if (typeof leaf !== 'string') apply(/** @type {Element} */ (node), leaf);
  else if (node.nodeValue !== leaf) node.nodeValue = leaf;
}

/** @param {Element} element @param {Branch} branch */
function apply(element, { props, children }) {
  const before = given.get(element) ?? {};
  for (const name of Object.keys(before)) if (!(name in props)) set(element, name, undefined);
  if (props['opaque'] !== true) patchChildren(element, children);
  // After the children: a select takes a value only when it has the option.
  for (const [name, value] of Object.entries(props)) set(element, name, value, before[name]);
  given.set(element, props);
  const ref = props['ref'];
  if (typeof ref === 'function') ref(element);
}

/** @param {Element} element @param {string} name @param {unknown} value @param {unknown} [before] */
function set(element, name, value, before) {
  if (name === 'key' || name === 'ref' || name === 'opaque') return;
  if (REFUSED.has(name)) throw new Error(`${name} is not set on elements`);
  const properties = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (element));
  if (name.startsWith('on')) {
    properties[name] = typeof value === 'function' ? value : null;
  } else if (name === 'css') {
    for (const [property, text] of Object.entries(value ?? {})) {
      /** @type {HTMLElement} */ (element).style.setProperty(property, text);
    }
  } else if (PROPERTIES.has(name)) {
    // What a person has opened, typed or ticked stands until the description changes.
    const isOwn = (name === 'open' || name === 'value') && before === value;
    if (!isOwn && properties[name] !== value) properties[name] = value ?? (name === 'value' ? '' : false);
  } else if (value === undefined || value === null || value === false) {
    element.removeAttribute(name);
  } else {
    const text = value === true ? '' : String(value);
    if (name === 'href' && !/^(#|https?:\/\/)/.test(text))
      throw new Error('links lead into the page or to http');
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}
