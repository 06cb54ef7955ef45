// TensorBoard's Event, with only the fields that scalars need (field numbers from tensorboard/compat/proto/event.proto and summary.proto).
import protobuf from 'protobufjs';
import type { MetricPoint } from '../metric-point.js';

/** TensorBoard requires this text in a file's first event. */
const eventFileVersion = 'brain.Event:2';

const { Event } = protobuf.Root.fromJSON({
  nested: {
    Event: {
      oneofs: { what: { oneof: ['fileVersion', 'summary'] } },
      fields: {
        /** Seconds. */
        wallTime: { type: 'double', id: 1 },
        step: { type: 'int64', id: 2 },
        fileVersion: { type: 'string', id: 3 },
        summary: { type: 'Summary', id: 5 },
        sourceMetadata: { type: 'SourceMetadata', id: 10 },
        /** Our own field, which all other readers skip: the point's id. */
        longhaulPoint: { type: 'string', id: 20_001 },
      },
    },
    SourceMetadata: { fields: { writer: { type: 'string', id: 1 } } },
    Summary: { fields: { value: { rule: 'repeated', type: 'Value', id: 1 } } },
    Value: {
      // Outside a oneof, protobuf does not write a zero, and TensorBoard takes a missing scalar for a missing value.
      oneofs: { value: { oneof: ['simpleValue'] } },
      fields: { tag: { type: 'string', id: 1 }, simpleValue: { type: 'float', id: 2 } },
    },
  },
}).nested as { Event: protobuf.Type };

/** The first event of a file. `at`: ISO 8601. */
export function encodeFileVersion(at: string): Uint8Array {
  const event = {
    wallTime: secondsOf(at),
    fileVersion: eventFileVersion,
    sourceMetadata: { writer: 'longhaul' },
  };
  return Event.encode(Event.create(event)).finish();
}

/** One event for each point, so TensorBoard shows either all of its values or none. */
export function encodePoint({ id, step, at, values }: MetricPoint): Uint8Array {
  const value = Object.entries(values)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([tag, simpleValue]) => ({ tag, simpleValue }));
  const event = { wallTime: secondsOf(at), step, summary: { value }, longhaulPoint: id };
  return Event.encode(Event.create(event)).finish();
}

/** `version`: only in a file's first event; `point`: the id, only in our own events. Throws if the bytes are not an event. */
export function decodeEvent(bytes: Uint8Array): { version: string | null; point: string | null } {
  const { fileVersion, longhaulPoint } = Event.toObject(Event.decode(bytes)) as {
    fileVersion?: string;
    longhaulPoint?: string;
  };
  return { version: fileVersion ?? null, point: longhaulPoint ?? null };
}

function secondsOf(at: string): number {
  return Date.parse(at) / 1000;
}
