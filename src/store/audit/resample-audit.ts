// What the steps of a run had sampled before they were sampled again (R24). This is no violation: a person asked for it, in a control record.
import { episodesFolder } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readControl } from '../runs/control-records.js';
import { timelinesOf } from '../runs/run-records.js';
import { type AuditReport, readable } from './audit-report.js';

/** `store`: the store itself, since a run's view does not show what is set aside. */
export async function auditResamples(store: ObjectStore, run: string, report: AuditReport): Promise<void> {
  for await (const timeline of timelinesOf(store, run)) {
    const records = await readable(report, `runs/${timeline.run}`, () => readControl(store, timeline.run));
    for (const { n, change } of records ?? []) {
      if (change.kind !== 'resample' || change.step > timeline.upTo) continue;
      const keys = new Set(change.keys);
      let episodes = 0;
      for await (const { key } of store.list(episodesFolder(timeline.run, change.step)))
        if (keys.has(key)) episodes += 1;
      report.resampled.push({ step: change.step, control: n, episodes });
    }
  }
  report.resampled.sort((a, b) => a.step - b.step || a.control - b.control);
}
