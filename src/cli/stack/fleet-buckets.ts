// The variables with which SkyRL Fleet Training names its buckets. Nothing here reads them: one store holds checkpoints and trajectories.

const variables = ['S3_CHECKPOINT_BUCKET', 'S3_TRAJECTORY_BUCKET'] as const;

/** What to do for each bucket that a variable names and the store is not in; null if there is none. */
export function bucketNote(
  environment: Readonly<Record<string, string | undefined>>,
  store: string,
): string | null {
  const bucket = /^s3:\/\/([^/?]+)/.exec(store)?.[1];
  const others = variables.filter((name) => {
    const named = environment[name]?.trim();
    return named !== undefined && named !== '' && named !== bucket;
  });
  if (others.length === 0) return null;
  return (
    `${others.join(' and ')} ${others.length === 1 ? 'is' : 'are'} not read: one store has checkpoints/ and trajectories/, here ${store}. ` +
    'To keep both in a bucket: --store s3://BUCKET'
  );
}
