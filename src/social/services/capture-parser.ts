/** What a capture says, read the same way every time. */
export interface ParsedCapture {
  readonly title: string;
  readonly tags: readonly string[];
  readonly urls: readonly string[];
}

const TITLE_LENGTH_MAX = 120;
/** More in one capture is no plan but a dump. */
const LINKS_MAX = 50;

export function parseCapture(capture: string): ParsedCapture {
  const found = capture.match(/https?:\/\/[^\s<>"')\]]+/giu) ?? [];
  const urls = [...new Set(found.flatMap(canonicalUrl))].slice(0, LINKS_MAX);
  const words = capture.replaceAll(/https?:\/\/\S+/giu, ' ');
  const tags = [...words.matchAll(/#([\p{L}\p{N}_]+)/gu)].map(([, tag = '']) => tag.toLowerCase());
  const firstLine = words.split('\n').find((line) => line.trim() !== '') ?? '';
  const title = firstLine.trim().replaceAll(/\s+/g, ' ').slice(0, TITLE_LENGTH_MAX);
  return { title: title || (urls[0] ?? ''), tags: [...new Set(tags)].sort(), urls };
}

/** One spelling for one page, so that items share its row: without fragment and tracking, punctuation not included. */
function canonicalUrl(text: string): string[] {
  const trimmed = text.replace(/[.,;:!?]+$/u, '');
  if (!URL.canParse(trimmed)) return [];
  const url = new URL(trimmed);
  url.hash = '';
  for (const name of [...url.searchParams.keys()]) {
    if (/^(utm_|fbclid$|gclid$)/.test(name)) url.searchParams.delete(name);
  }
  return [url.href];
}
