import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { ALERTS } from './alerts.ts';
import { renderDashboard } from './dashboard.ts';
import { renderGrafana, renderPrometheus } from './render-alerts.ts';

const DIRECTORY = new URL('../../docs/monitoring/', import.meta.url);

const FILES = {
  'taskq-alerts.yml': () => renderPrometheus(ALERTS),
  'grafana-alerts.yml': () => renderGrafana(ALERTS),
  'grafana-dashboard.json': renderDashboard,
} as const;

export type MonitoringFile = keyof typeof FILES;
export const MONITORING_FILES = Object.keys(FILES) as MonitoringFile[];

export const pathOf = (file: MonitoringFile): string => fileURLToPath(new URL(file, DIRECTORY));
export const shipped = (file: MonitoringFile): string => readFileSync(pathOf(file), 'utf8');
export const rendered = (file: MonitoringFile): string => FILES[file]();

/** Writes every file of docs/monitoring. */
export function writeMonitoring(): void {
  for (const file of MONITORING_FILES) writeFileSync(pathOf(file), rendered(file));
}
