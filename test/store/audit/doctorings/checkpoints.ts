// Doctored checkpoints, which contradict their manifests or the chain.
import * as layout from '../../../../src/store/record-keys.js';
import { requireRecord } from '../../../../src/store/records/records.js';
import { readState } from '../../../../src/store/runs/run-records.js';
import { audited, type Doctoring, edited, home, run } from '../doctored-run.js';

export const checkpoints: readonly Doctoring[] = [
  {
    what: "a checkpoint's bytes changed",
    rule: 'R31',
    at: () => layout.checkpointFolder(home, audited.last),
    doctor: (store) => {
      const key = layout.checkpointFileKey(home, audited.last, 'state.safetensors');
      const bytes = store.bytes(key);
      bytes[bytes.length - 5] = (bytes[bytes.length - 5] as number) ^ 1;
      store.write(key, bytes);
    },
  },
  {
    what: 'a checkpoint of a step that is not committed',
    rule: 'R31',
    at: () => layout.checkpointManifestKey(home, audited.last + 1),
    names: 'not committed',
    doctor: async (store) => {
      const key = layout.checkpointManifestKey(home, audited.last);
      const manifest = await requireRecord(store.store, key, 'checkpoint');
      const step = audited.last + 1;
      await store.put(layout.checkpointManifestKey(home, step), 'checkpoint', {
        ...manifest,
        step,
      });
    },
  },
  {
    what: 'a run ended without a checkpoint of its last state',
    rule: 'R17',
    at: () => layout.checkpointManifestKey(home, audited.last),
    doctor: (store) => store.remove(layout.checkpointsFolder(home)),
  },
  {
    what: 'a checkpoint whose manifest names another state',
    rule: 'R31',
    at: () => layout.checkpointManifestKey(home, audited.last),
    doctor: async (store) => {
      const other = await readState(store.store, run, 1);
      await store.edit(
        layout.checkpointManifestKey(home, audited.last),
        'checkpoint',
        (manifest) => (manifest.state = other),
      );
    },
  },
  {
    what: 'a checkpoint whose file is missing',
    rule: 'R31',
    at: () => layout.checkpointFolder(home, audited.last),
    names: 'it is missing, but its manifest exists',
    doctor: (store) => store.remove(layout.checkpointFileKey(home, audited.last, 'state.safetensors')),
  },
  {
    what: 'a checkpoint whose manifest names another step',
    rule: 'R31',
    names: 'it says step',
    ...edited(
      () => layout.checkpointManifestKey(home, audited.last),
      'checkpoint',
      (manifest) => (manifest.step += 7),
    ),
  },
];
