import { formatDuration } from '../domain/duration.ts';
import { CRON_LATE_MS_MAX } from '../domain/limits.ts';
import type { CheckedEntry } from '../scheduler/entries.ts';
import { listEntries, readTicks } from '../statements/cron.ts';
import { readDead, readOverdue } from '../statements/doctor.ts';
import { type Check, ok, type Verdict, verdict } from './check.ts';
import { argument, counted, named } from './phrases.ts';

// What goes on beside the tasks: the scheduler, dead letters, and the prune.

const cronEntries: Check = {
  id: 'cron-entries',
  group: 'upkeep',
  describes:
    'The newest tick of each cron entry against its schedule. Warning: the latest one was not taken, or no scheduler has seen the entry. Problem: the two latest ones. Unknown: there are ticks, but no cron list was given.',
  async examine({ onPrimary, options: { cron } }) {
    if (cron === undefined || cron.entries.length === 0) {
      const { entries } = await onPrimary(listEntries);
      if (entries.length === 0) return ok('no cron list, and no ticks');
      return verdict(
        'unknown',
        `${counted(entries.length, 'entry has', 'entries have')} ticks, but their schedules are not known`,
        'name the module with --cron, or write cron into taskq.config.ts',
      );
    }
    const given = cron.entries.map(({ name, schedule }) => ({ entry: name, schedule: schedule.text }));
    const { nowMs, ticks } = await onPrimary((lane) => readTicks(lane, given));
    const newest = new Map(ticks.map(({ entry, newestMs }) => [entry, newestMs]));
    return judgeCron(cron.entries, newest, nowMs);
  },
};

function judgeCron(
  entries: readonly CheckedEntry[],
  newest: ReadonlyMap<string, number | undefined>,
  nowMs: number,
): Verdict {
  const late = entries.flatMap(({ name, schedule }) => {
    const newestMs = newest.get(name);
    const latestMs = schedule.latest(nowMs - CRON_LATE_MS_MAX);
    if (newestMs === undefined) return [{ found: `${name}: no scheduler has seen it`, missesTwo: false }];
    if (latestMs === undefined || latestMs <= newestMs) return [];
    const beforeMs = schedule.latest(latestMs - 1);
    return [
      {
        found: `${name}: its tick of ${formatDuration(nowMs - latestMs)} ago was not taken`,
        missesTwo: beforeMs !== undefined && beforeMs > newestMs,
      },
    ];
  });
  if (late.length === 0) return ok(`${counted(entries.length, 'entry', 'entries')}, none late`);
  return verdict(
    late.some(({ missesTwo }) => missesTwo) ? 'problem' : 'warning',
    named(late.map(({ found }) => found)),
    'see that a worker has the role cron and this cron list: taskq work --roles processor,cron,prune',
    'run one now, beside its ticks: taskq cron run <entry>',
  );
}

const deadLetters: Check = {
  id: 'dead-letters',
  group: 'upkeep',
  describes: 'Dead letters. Warning: some are of the last 24 hours.',
  async examine({ onReadLane, retentionMs }) {
    const { dead, news, newsType } = await onReadLane((lane) => readDead(lane, retentionMs));
    if (news === 0) return ok(dead === 0 ? 'none' : `${dead}, none of the last 24 hours`);
    return verdict(
      'warning',
      `${dead}, ${news} of them of the last 24 hours, most of type ${newsType}`,
      `taskq dead list --type ${argument(newsType ?? '')}`,
    );
  },
};

const prune: Check = {
  id: 'prune',
  group: 'upkeep',
  describes:
    'Dead letters, records of finished tasks and audit rows that are two hours past their time. Warning: there are some, so no worker prunes.',
  async examine({ onReadLane, retentionMs }) {
    const { overdue, records, audit } = await onReadLane(async (lane) => ({
      ...(await readDead(lane, retentionMs)),
      ...(await readOverdue(lane)),
    }));
    if (overdue + records + audit === 0) return ok('nothing is past its time');
    return verdict(
      'warning',
      `past their time: ${counted(overdue, 'dead letter')}, ${counted(records, 'record')} of finished tasks, ${counted(audit, 'audit row')}`,
      'taskq prune',
      'see that a worker has the role prune: taskq work --roles processor,cron,prune',
    );
  },
};

export const UPKEEP_CHECKS = [cronEntries, deadLetters, prune];
