// A run that an earlier version began: the parts that this version can read, and the error for those it cannot.
import { describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import { ownersFolder, planKey, runKey } from '../../../src/store/objects/layout.js';
import { sequenceNumbers } from '../../../src/store/records/records.js';
import { run, tamper, workflow } from '../fixture.js';
import { signedAgain } from '../../support/signed-again.js';
import { harness, useHarness } from '../own-harness.js';

useHarness();

/** Changes a plan as if the last version had written it: only the schema's number differs. */
const planEarlier = (step: number): Promise<void> =>
  tamper(harness.store, planKey(run, step), (bytes) =>
    bytes.toString().replace('longhaul.plan/3', 'longhaul.plan/1'),
  );

describe('a run whose steps an earlier version planned', () => {
  const refused = (step: number) => ({
    type: 'OlderSchema',
    nonRetryable: true,
    message: expect.stringMatching(
      `${planKey(run, step)} has schema longhaul.plan/1: .*Continue that run with that version, or start it again`,
    ) as string,
  });
  const open = (spec: unknown) => {
    const { openRun } = createOrchestratorActivities(harness.orchestrator);
    return harness.attempt('open', () => openRun({ spec, workflow }));
  };

  it('is refused when it is started, before it gets a new owner or waits for a node', async () => {
    await harness.advance(1);
    await planEarlier(1);
    const owners = await sequenceNumbers(harness.store, ownersFolder(run));
    await expect(open(harness.spec)).rejects.toMatchObject(refused(1));
    expect(await sequenceNumbers(harness.store, ownersFolder(run))).toEqual(owners);
  });

  it('is refused when it is forked or rebased, and no fork is left behind', async () => {
    await harness.advance(2);
    await planEarlier(1);
    const fork = { run, step: 1 };
    await expect(open({ ...harness.spec, name: 'fork', fork })).rejects.toMatchObject(refused(1));
    const { numerics } = await harness.engine.info();
    const rebase = { ...{ run, step: 0 }, rebase: { to: 1, numerics } };
    await expect(open({ ...harness.spec, name: 'rebased', fork: rebase })).rejects.toMatchObject(refused(1));
    for (const name of ['fork', 'rebased']) expect(await harness.store.head(runKey(name))).toBeNull();
  });

  it('is distinguished from a damaged run by the audit, which names the record', async () => {
    await harness.advance(1);
    await planEarlier(1);
    const { violations } = await auditRun(harness.store, run);
    expect(violations).toContainEqual(
      expect.objectContaining({
        key: planKey(run, 1),
        problem: expect.stringMatching('longhaul.plan/1') as string,
      }),
    );
  });
});

describe('a spec that was stored by an earlier version', () => {
  /** Stores the spec as it was when only one kind of objective, adapters and moments existed. */
  async function storeEarlier(): Promise<void> {
    const later = [
      ...[
        'policy_loss_type',
        'loss_reduction',
        'clip_ratio_c',
        'cispo',
        'sapo',
        'use_kl_loss',
        'kl_loss_coef',
      ],
      ...['kl_estimator_type', 'use_entropy_loss', 'entropy_loss_coef', 'use_tis', 'tis_imp_ratio_cap'],
      ...['grpo_norm_by_std', 'advantage_deviation'],
    ];
    await tamper(harness.store, runKey(run), (bytes) => {
      const record = JSON.parse(bytes.toString()) as {
        spec: { model: Record<string, unknown>; trainer: Record<string, unknown> };
      };
      expect(record.spec.trainer).toMatchObject({ policy_loss_type: 'regular', use_kl_loss: false });
      for (const key of later) delete record.spec.trainer[key];
      delete record.spec.model['moments'];
      return signedAgain(JSON.stringify(record));
    });
  }

  it('equals a current spec with the same settings, and differs if one setting does', async () => {
    await harness.open();
    await storeEarlier();
    expect(await harness.open()).toMatchObject({ outline: { run } });
    const trainer = { ...(harness.spec['trainer'] as object), policy_loss_type: 'gspo' };
    await expect(harness.open({ ...harness.spec, trainer })).rejects.toThrow(
      /exists with another spec:\n +trainer\.policy_loss_type \(stored "regular", computed "gspo"\)/,
    );
  });
});
