// Lines over the last minutes, drawn by uPlot. Beside the picture the newest values stand as text, and those under
// the pointer while it is over a chart.

import { HISTORY_MS } from '../live.js';
import uPlot from '../vendor/uplot.js';
import { h } from '../view.js';

/** @typedef {{ label: string, color: string, values: readonly (number | null)[], isFilled?: boolean, isDashed?: boolean }} Line */
/**
 * @typedef {{
 *   title: string, unit?: string, times: readonly number[], lines: readonly Line[], format: (value: number) => string,
 *   least: number, changed: () => void,
 * }} ChartOptions
 */

const HISTORY_S = HISTORY_MS / 1_000;
/** A page that was just opened fills its charts with the little there is, instead of waiting ten minutes. */
const SPAN_MIN_S = 60;
const HEIGHT_PX = 168;
const HEIGHT_NARROW_PX = 140;
const AXIS_TEXT_PX = 11;

/** @type {WeakMap<Element, { plot: uPlot, look: string }>} */
const plots = new WeakMap();
/** The index under the pointer, which all charts share. @type {number | null} */
let hovered = null;

/** @param {ChartOptions} options `least`: the smallest upper end of the scale; `changed`: draws the page again */
export function chart(options) {
  const { title, unit, times, lines, format } = options;
  const index = hovered !== null && hovered < times.length ? hovered : times.length - 1;
  const shownValue = (/** @type {Line} */ { values }) => {
    const value = values[index];
    return value === null || value === undefined ? '–' : format(value);
  };
  const words = lines.map((line) => `${line.label} ${shownValue(line)}`).join(', ');
  return h(
    'figure',
    { class: 'chart panel', key: title },
    h(
      'figcaption',
      { class: 'panel-head' },
      h('h2', null, title),
      unit === undefined ? null : h('p', { class: 'panel-note' }, unit),
    ),
    h('div', {
      class: 'chart-plot',
      opaque: true,
      role: 'img',
      'aria-label': `${title}. ${words}`,
      ref: (/** @type {HTMLElement} */ element) => plot(element, options),
    }),
    h(
      'ul',
      { class: 'legend' },
      lines.map((line) =>
        h(
          'li',
          { key: line.label },
          h('span', { class: `legend-mark legend-${line.color}${line.isDashed ? ' legend-dashed' : ''}` }),
          h('span', { class: 'legend-label', dir: 'auto' }, line.label),
          h('span', { class: 'legend-value' }, shownValue(line)),
        ),
      ),
    ),
  );
}

/** @param {HTMLElement} element @param {ChartOptions} options */
function plot(element, options) {
  const { times, lines } = options;
  const look = [
    document.documentElement.dataset['theme'],
    matchMedia('(prefers-color-scheme: dark)').matches,
    ...lines.map(({ label, color }) => `${label} ${color}`),
  ].join('|');
  const known = plots.get(element);
  const data = /** @type {uPlot.AlignedData} */ ([times, ...lines.map(({ values }) => values)]);
  if (known?.look === look) {
    known.plot.setData(data);
    return;
  }
  known?.plot.destroy();
  // Its width is known once it is in the document.
  queueMicrotask(() => {
    if (!element.isConnected || plots.get(element)?.look === look) return;
    const made = new uPlot(settings(element, options), data, element);
    plots.set(element, { plot: made, look });
    watchSize(element);
  });
}

/** @type {WeakSet<Element>} */
const watched = new WeakSet();

/** @param {HTMLElement} element */
function watchSize(element) {
  if (watched.has(element)) return;
  watched.add(element);
  const observer = new ResizeObserver(() => {
    const known = plots.get(element);
    if (!element.isConnected) {
      known?.plot.destroy();
      observer.disconnect();
    } else if (element.clientWidth > 0) known?.plot.setSize(sizeOf(element));
  });
  observer.observe(element);
}

/** @param {HTMLElement} element */
function sizeOf(element) {
  return { width: element.clientWidth, height: element.clientWidth < 400 ? HEIGHT_NARROW_PX : HEIGHT_PX };
}

/** @param {HTMLElement} element @param {ChartOptions} options @returns {uPlot.Options} */
function settings(element, { lines, format, least, changed }) {
  const style = getComputedStyle(element);
  const color = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: color('muted'),
    font: `${AXIS_TEXT_PX}px ${style.fontFamily}`,
    grid: { stroke: color('line'), width: 1 },
    ticks: { show: false },
    border: { show: false },
  };
  return {
    ...sizeOf(element),
    padding: [10, 18, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 }, sync: { key: 'taskq' } },
    hooks: {
      setCursor: [
        (made) => {
          const index = made.cursor.idx ?? null;
          if (index === hovered) return;
          hovered = index;
          changed();
        },
      ],
    },
    scales: {
      x: {
        time: true,
        range: (_made, min, max) => [Math.max(max - HISTORY_S, Math.min(min, max - SPAN_MIN_S)), max],
      },
      y: { range: (_made, _min, max) => [0, Math.max(least, (max ?? 0) * 1.15)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 26,
        space: 70,
        values: (_made, ticks, _axis, _space, stepSeconds) => ticks.map(clockOf(stepSeconds)),
      },
      { ...axis, size: 52, space: 40, values: (_made, ticks) => ticks.map(format) },
    ],
    series: [
      {},
      ...lines.map(({ label, color: name, isFilled, isDashed }) => ({
        label,
        stroke: color(`chart-${name}`),
        width: 1.75,
        points: { show: false },
        ...(isDashed ? { dash: [5, 4] } : {}),
        ...(isFilled ? { fill: color(`chart-${name}-fill`) } : {}),
      })),
    ],
  };
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const CLOCK_WITH_SECONDS = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });

/** @param {number} stepSeconds @returns {(seconds: number) => string} */
function clockOf(stepSeconds) {
  const format = stepSeconds < 60 ? CLOCK_WITH_SECONDS : CLOCK;
  return (seconds) => format.format(seconds * 1_000);
}
