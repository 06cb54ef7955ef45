// A workflow of the type of runs that does what its input says, for whoever only looks at runs from outside.
import { ApplicationFailure, condition, continueAsNew, upsertSearchAttributes } from '@temporalio/workflow';
import { defineSearchAttributeKey, type SearchAttributePair } from '@temporalio/common';

export type StandInEnd = 'waits' | 'goes on' | 'fails' | 'completes' | 'stops';

export async function trainingRun(end: StandInEnd): Promise<{ ended: string; budget?: string }> {
  const phase = {
    key: defineSearchAttributeKey('Phase', 'KEYWORD'),
    value: 'running',
  } as SearchAttributePair;
  upsertSearchAttributes([phase]);
  if (end === 'goes on') await continueAsNew<typeof trainingRun>('waits');
  if (end === 'waits') await condition(() => false);
  if (end === 'fails') throw ApplicationFailure.nonRetryable('the data is gone');
  return end === 'stops' ? { ended: 'stopped', budget: '1 of 1 USD' } : { ended: 'completed' };
}
