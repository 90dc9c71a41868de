import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { runSocialDemo } from '../../src/social/demo/main.ts';
import { expect, test } from '../support/test.ts';

const TYPES_OF_EVENTS = [
  'cleanup:s3_delete',
  'cleanup:s3_orphan_sweep',
  'engine:eval_travel_log',
  'engine:eval_user_activated',
  'engine:replay_challenge',
  'engine:replay_stamp',
  'item:parse',
  'link:enrich',
  'location:enrich',
];

test('the story of the social app comes true over three weighted queues and a ticking cron list', {
  timeout: 180_000,
}, async () => {
  const out = new PassThrough();
  const told = text(out);
  const code = await runSocialDemo({ out });
  out.end();
  const story = await told;
  expect(code, story).toBe(0);
  expect(story).not.toContain('WRONG');
  for (const type of TYPES_OF_EVENTS) expect(story).toContain(`× ${type} success`);
  expect(new Set(story.match(/cron:\w+ success/g)).size).toBe(16);
  expect(story).toMatch(/of the first hundred claims: critical \d+, default \d+, low \d+/);
});

test('ended early, it closes what it has started', { timeout: 180_000 }, async () => {
  const interruption = new AbortController();
  const out = new PassThrough();
  out.on('data', (chunk: Buffer) => {
    if (chunk.includes('two replicas are up')) interruption.abort();
  });
  expect(await runSocialDemo({ out, signal: interruption.signal })).toBe(130);
});
