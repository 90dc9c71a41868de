// Addresses of the page, all behind the '#': they need nothing of the server, and names with slashes or dots in them
// are safe there.

/** @typedef {{ path: readonly string[], query: URLSearchParams }} Place */

/** @param {string} hash @returns {Place} */
export function placeOf(hash) {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  return { path: path.split('/').map(decoded), query: new URLSearchParams(query) };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    // Typed by hand: no name contains it, so nothing will be found.
    return text;
  }
}

/** @param {readonly string[]} path @param {Record<string, string | undefined>} [query] */
export function linkTo(path, query = {}) {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    value === undefined || value === '' ? [] : [[name, value]],
  );
  const text = new URLSearchParams(pairs).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text === '' ? '' : `?${text}`}`;
}
