// A workflow with the type name of a run that behaves as its input says, for tests of code that only reads workflows.
import {
  ApplicationFailure,
  condition,
  continueAsNew,
  defineQuery,
  defineSignal,
  setHandler,
  upsertSearchAttributes,
} from '@temporalio/workflow';
import { defineSearchAttributeKey } from '@temporalio/common';

export type StandInEnd = 'waits' | 'goes on' | 'fails' | 'completes' | 'stops' | 'is blocked';

/** Resumes a blocked workflow, which is blocked again at once, with the given reason. */
export const blockAgain = defineSignal<[reason: string]>('blockAgain');
export const asked = defineQuery<number>('asked');

export async function trainingRun(end: StandInEnd): Promise<{ ended: string; budget?: string }> {
  const showPhase = (value: string): void => {
    const key = defineSearchAttributeKey('Phase', 'KEYWORD');
    upsertSearchAttributes([{ key, value }]);
  };
  showPhase(end === 'is blocked' ? 'blocked' : 'running');
  if (end === 'is blocked') {
    let [reason, queries] = ['the first reason', 0];
    setHandler(defineQuery<object>('status'), () => {
      queries += 1;
      return { blocked: { reason, remedy: 'resume it' } };
    });
    setHandler(asked, () => queries);
    setHandler(blockAgain, (next) => {
      showPhase('running');
      showPhase('blocked');
      reason = next;
    });
    await condition(() => false);
  }
  if (end === 'goes on') await continueAsNew<typeof trainingRun>('waits');
  if (end === 'waits') await condition(() => false);
  if (end === 'fails') throw ApplicationFailure.nonRetryable('the data is gone');
  return end === 'stops' ? { ended: 'stopped', budget: '1 of 1 USD' } : { ended: 'completed' };
}
