// Worker thread: the parts of preparing a dataset that read and write whole files.
import { answerCalls } from '../../base/worker-thread.js';
import type { DatasetSpec } from '../../spec/dataset-spec.js';
import type { GatheredRecord } from '../../spec/records/preparation-records.js';
import type { DatasetReference } from '../../spec/records/run-records.js';
import { openStore } from '../../store/open-store.js';
import { finish } from './finishing.js';
import { gather, type Gathered } from './gathering.js';

export type PreparationCall = { store: string } & ({ gather: DatasetSpec } | { finish: GatheredRecord });

answerCalls(async (call: PreparationCall): Promise<Gathered | DatasetReference> => {
  const store = await openStore(call.store);
  return 'gather' in call ? gather(store, call.gather) : finish(store, call.finish);
});
