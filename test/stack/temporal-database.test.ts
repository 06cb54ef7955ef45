// A damaged database of the embedded Temporal server ends the start with an error that says what to do, and stays as it is.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { startStack } from '../../src/stack/stack.js';
import { refuseDamagedDatabase } from '../../src/stack/temporal-database.js';
import { repository } from '../support/repository.js';
import { scratchFolder } from '../support/scratch-folder.js';

const folder = scratchFolder();
const file = join(folder, 'temporal.db');
const whole = gunzipSync(readFileSync(join(repository, 'test/workers/fixtures/temporal-1.31.2.db.gz')));
const overwritten = (from: number, to: number): Buffer => Buffer.from(whole).fill(0xa5, from, to);

describe('the database of the embedded Temporal server', () => {
  test.each<[string, Buffer, RegExp]>([
    ['cut off', whole.subarray(0, 100_000), /database disk image is malformed/],
    ['cut off within its header', whole.subarray(0, 50), /database disk image is malformed/],
    ['empty', Buffer.alloc(0), /it is empty/],
    ['overwritten at its beginning', overwritten(0, 4096), /file is not a database/],
    ['overwritten in its middle', overwritten(20 * 4096, 23 * 4096), /page 21/],
  ])(
    '%s: the stack does not start, and the error says what, where and how to go on',
    async (_, bytes, why) => {
      writeFileSync(file, bytes);
      writeFileSync(`${file}-wal`, '');
      const start = startStack({
        ...{ folder, engine: process.execPath, temporalPort: null },
        ...{ log: () => undefined, gaveUp: () => undefined },
      });
      const { message } = await start.then(
        () => ({ message: 'it has started' }),
        (error: Error) => error,
      );
      expect(message).toMatch(why);
      expect(message).toContain(`${file}, the database of`);
      expect(message).toContain(`Move ${file} and ${file}-wal away, and put a backup in its place`);
      expect(message).toContain('the records in the store remain');
      expect(message).toContain(`longhaul train --run RUN --folder ${folder}`);
      expect(readFileSync(file).equals(bytes)).toBe(true);
      expect(existsSync(join(folder, 'logs'))).toBe(false);
    },
  );

  test('whole or not there yet is accepted', () => {
    refuseDamagedDatabase(join(folder, 'none.db'));
    expect(existsSync(join(folder, 'none.db'))).toBe(false);
    const path = join(folder, 'whole.db');
    writeFileSync(path, whole);
    refuseDamagedDatabase(path);
    expect(readFileSync(path).equals(whole)).toBe(true);
  });
});
