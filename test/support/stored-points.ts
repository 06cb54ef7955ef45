// The points of a run that a tracker must have, and the ids in an event file.
import { MetricPoints } from '../../src/workers/follower/metric-points.js';
import { Delivered, type MetricPoint } from '../../src/integrations/tracking/metric-point.js';
import { decodeEvent } from '../../src/integrations/tracking/tensorboard/event.js';
import { RecordFraming } from '../../src/integrations/tracking/tensorboard/tensorboard-sink.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';

/** All points by id, as an undisturbed follower reads them. */
export async function expectedPoints(store: ObjectStore, run: string): Promise<Map<string, MetricPoint>> {
  const reader = new MetricPoints(store, run);
  const delivered = new Delivered();
  const points = new Map<string, MetricPoint>();
  for (let page; (page = await reader.next(delivered)).length > 0;) {
    for (const point of page) {
      points.set(point.id, point);
      delivered.add(point.id);
    }
  }
  return points;
}

export async function eventIds(bytes: Buffer): Promise<string[]> {
  const framing = await RecordFraming.create();
  const ids: string[] = [];
  for (let at = 0; at < bytes.length;) {
    const record = framing.first(bytes.subarray(at));
    if (record === null || record === 'damaged')
      throw new Error(`the event file is ${record ?? 'torn'} at ${at}`);
    const { point } = decodeEvent(record.data);
    if (point !== null) ids.push(point);
    at += record.taken;
  }
  return ids;
}
