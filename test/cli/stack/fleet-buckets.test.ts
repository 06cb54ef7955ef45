// A user of SkyRL Fleet Training who names buckets must not believe that checkpoints go there.
import { expect, test } from 'vitest';
import { bucketNote } from '../../../src/cli/stack/up-command.js';

const both = { S3_CHECKPOINT_BUCKET: 'ckpts', S3_TRAJECTORY_BUCKET: 'evals' };

test('a bucket that the store is not in is named, with what to do', () => {
  const note = bucketNote(both, 'dir:/srv/store');
  expect(note).toMatch(
    /^S3_CHECKPOINT_BUCKET and S3_TRAJECTORY_BUCKET are not read: .* here dir:\/srv\/store\./,
  );
  expect(note).toMatch(/--store s3:\/\/BUCKET$/);
  expect(bucketNote(both, 's3://ckpts/runs?region=us-east-1')).toMatch(/^S3_TRAJECTORY_BUCKET is not read/);
});

test('nothing is said if the store is in the bucket, or no bucket is named', () => {
  expect(bucketNote({ S3_CHECKPOINT_BUCKET: 'ckpts' }, 's3://ckpts')).toBeNull();
  expect(bucketNote({ S3_CHECKPOINT_BUCKET: '', S3_TRAJECTORY_BUCKET: undefined }, 'dir:/srv')).toBeNull();
  expect(bucketNote({}, 'dir:/srv')).toBeNull();
});
