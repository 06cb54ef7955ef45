// One of several processes that write the same records at the same time. Arguments: root, name, rounds. Starts when it
// reads a line, and prints the store's answers.
import { once } from 'node:events';
import { openDirectoryStore } from '../../../../src/store/objects/directory-store.js';
import { adoptOrCreate, appendSequence, recordFunction } from '../../../../src/store/records/records.js';
import { digestOf, recordsOfAllKinds } from '../../fixtures.js';

const [root = '', author = '', rounds = ''] = process.argv.slice(2);
const store = await openDirectoryStore(root);
const { plan, update, control } = recordsOfAllKinds();
const chosen: string[] = [];
const diverged: boolean[] = [];
const numbers: number[] = [];

console.log('ready');
await once(process.stdin, 'data');
for (let round = 0; round < Number(rounds); round++) {
  const mine = { ...plan, digests: { ...plan.digests, tool_parser: author } };
  const { record } = await adoptOrCreate(store, `choice/${round}.json`, 'plan', mine);
  chosen.push(record.digests.tool_parser);

  const state = digestOf(author === 'a' ? 'a' : 'b');
  const identity = { ...update.identity, state };
  diverged.push(
    await recordFunction(store, `function/${round}.json`, 'update', { ...update, identity }).then(
      () => false,
      (error: unknown) => (error as Error).name === 'Diverged',
    ),
  );

  const { n } = await appendSequence(store, 'sequence/', 'control', (next) => ({
    ...control,
    n: next,
    update_id: `${author}-${round}`,
  }));
  numbers.push(n);
}
console.log(JSON.stringify({ chosen, diverged, numbers }));
process.exit(0);
