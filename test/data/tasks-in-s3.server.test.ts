// Task files in a bucket of a real S3 server.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readDataFiles } from '../../src/data/run-dataset.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { openStore } from '../../src/store/open-store.js';
import { specFor } from '../activities/fixture.js';
import { type S3Server, startS3Server } from '../support/servers/s3-server.js';

let s3: S3Server;
beforeAll(async () => {
  s3 = await startS3Server();
  const store = await openStore(s3.address('v3/openenv'));
  const rows = [1, 2].map((number) => ({ key: `task ${number}`, prompt: 'Do it.', env_id: 'mail' }));
  await store.create('all_tool_use.json', Buffer.from(JSON.stringify({ tasks: rows })));
  await store.create(
    'cut.jsonl',
    Buffer.from('{"task_key":"a","prompt":"Do it.","env_key":"mail"}\n{"task_k'),
  );
  await store.create('empty.json', Buffer.from(''));
});
afterAll(() => s3?.stop());

/** The spec's path of an object, as a person writes it. */
const pathOf = (name: string): string => s3.address('v3/openenv').replace('v3/openenv', `v3/openenv/${name}`);
const dataOf = (tasks: string) =>
  parseRunSpec({ ...specFor({ tasks, demonstrations: '/t/d.jsonl' }), warm_start: [] }).data;
const read = ({ demonstrations: _, ...data }: ReturnType<typeof dataOf>) => readDataFiles(data);

describe('a task file in a bucket', () => {
  it('is read', async () => {
    const { tasks } = await read(dataOf(pathOf('all_tool_use.json')));
    expect(tasks.map(({ task_key }) => task_key)).toEqual(['task 1', 'task 2']);
  });

  it.each([
    ['nothing.json', /cannot be read: there is no such object/],
    ['cut.jsonl', /line 2: not JSON \(the file seems cut off/],
    ['empty.json', /the file has no task/],
  ])('%s is refused with one error', async (name, message) => {
    await expect(read(dataOf(pathOf(name)))).rejects.toThrow(message);
  });

  it('in another bucket is refused with one error', async () => {
    const path = pathOf('all_tool_use.json').replace(s3.bucket, 'no-such-bucket');
    await expect(read(dataOf(path))).rejects.toThrow(/no-such-bucket.*cannot be read/s);
  });
});
