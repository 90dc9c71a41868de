import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import type { Asset, Assets } from './server.ts';

// The files of the dashboard, as they stand in `dashboard/`: what the browser runs is what is read there. They hold no
// secret, so that whoever may reach the port may read them; everything of the queue goes through the API.

const FOLDER = new URL('./dashboard/', import.meta.url);

const CONTENT_TYPES = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
} as const;

/** A list, not the folder: what is no file of the page is not served, however its path is written. */
const FILES = [
  'app.js',
  'api.js',
  'format.js',
  'icon.svg',
  'live.js',
  'resource.js',
  'router.js',
  'style.css',
  'theme.js',
  'view.js',
  'pages/audit.js',
  'pages/cron.js',
  'pages/dead-letters.js',
  'pages/login.js',
  'pages/overview.js',
  'pages/queues.js',
  'pages/replicas.js',
  'pages/task.js',
  'pages/tasks.js',
  'parts/bulk.js',
  'parts/chart.js',
  'parts/deeds.js',
  'parts/dialog.js',
  'parts/filter.js',
  'parts/icons.js',
  'parts/messages.js',
  'parts/pieces.js',
  'parts/queue-table.js',
] as const;

/** Where each file lies, by its path below the handler's base path. */
function locations(): ReadonlyMap<string, string> {
  const uplot = createRequire(import.meta.url).resolve('uplot');
  return new Map([
    ['/', fileURLToPath(new URL('index.html', FOLDER))],
    ...FILES.map((name): [string, string] => [`/assets/${name}`, fileURLToPath(new URL(name, FOLDER))]),
    ['/assets/vendor/uplot.js', uplot.replace(/uPlot\.cjs\.js$/, 'uPlot.esm.js')],
    ['/assets/vendor/uplot.css', uplot.replace(/uPlot\.cjs\.js$/, 'uPlot.min.css')],
  ]);
}

/** The dashboard's files, for `assets` of `createAdmin`. Each is read once. */
export function dashboardAssets(): Assets {
  const places = locations();
  const read = new Map<string, Promise<Asset>>();
  return (path) => {
    const file = places.get(path);
    if (file === undefined) return undefined;
    let asset = read.get(path);
    if (asset === undefined) {
      asset = readAsset(file);
      read.set(path, asset);
      // A failure, such as too many open files, is not kept.
      asset.catch(() => read.delete(path));
    }
    return asset;
  };
}

async function readAsset(file: string): Promise<Asset> {
  const extension = file.slice(file.lastIndexOf('.') + 1) as keyof typeof CONTENT_TYPES;
  return { body: await readFile(file, 'utf8'), contentType: CONTENT_TYPES[extension] };
}
