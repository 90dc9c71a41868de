/** What a page says of itself. */
export interface LinkPreview {
  readonly title: string | undefined;
  readonly description: string | undefined;
}

/** Fetches pages; the app's tests and demo serve their own. */
export interface LinkPreviewer {
  /** @throws PageUnusable for what no retry can help; anything else may be better the next time */
  preview(url: string, signal: AbortSignal): Promise<LinkPreview>;
}

/** The page is gone, or is none, or must not be fetched: that is the answer, not a failure. */
export class PageUnusable extends Error {
  override readonly name = 'PageUnusable';
}

/** What a preview needs stands at the beginning of a page. */
const PAGE_BYTES_MAX = 262_144;

/**
 * Fetches over HTTP.
 * @param isAllowed which hosts may be asked: links come from people, and a server can reach what they cannot
 */
export function httpPreviewer(isAllowed: (url: URL) => boolean): LinkPreviewer {
  return {
    async preview(url, signal) {
      if (!isAllowed(new URL(url))) throw new PageUnusable('the host may not be asked');
      // A redirect could lead to a host that may not be asked.
      const response = await fetch(url, { signal, redirect: 'manual', headers: { accept: 'text/html' } });
      try {
        return await previewOf(response);
      } finally {
        await response.body?.cancel().catch(() => undefined);
      }
    },
  };
}

async function previewOf(response: Response): Promise<LinkPreview> {
  const { status } = response;
  if (status >= 500 || status === 429) throw new Error(`the page answers ${status}`);
  if (status !== 200) throw new PageUnusable(`the page answers ${status}`);
  const type = response.headers.get('content-type') ?? '';
  if (!type.startsWith('text/html')) throw new PageUnusable(`the page is ${type || 'of no type'}`);
  const html = await beginningOf(response);
  return { title: textOf(/<title[^>]*>([^<]*)</i, html), description: textOf(DESCRIPTION, html) };
}

const DESCRIPTION = /<meta\s[^>]*name=["']description["'][^>]*content=["']([^"'>]*)/i;

function textOf(pattern: RegExp, html: string): string | undefined {
  const text = pattern.exec(html)?.[1]?.replaceAll(/\s+/g, ' ').replaceAll('\0', '').trim();
  return text === '' ? undefined : text;
}

async function beginningOf({ body }: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const reader = body?.getReader();
  while (reader !== undefined && bytes < PAGE_BYTES_MAX) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    bytes += value.length;
  }
  reader?.releaseLock();
  return Buffer.concat(chunks).toString('utf8', 0, PAGE_BYTES_MAX);
}
