// The Temporal server that the files of a test run share. What a test starts there has ids and task queues that no other test has.
import { inject } from 'vitest';
import type {} from '../whole-run/temporal-setup.js';
import { connectTemporal, type ConnectedTemporal } from './temporal-server.js';

export function sharedTemporal(): Promise<ConnectedTemporal> {
  return connectTemporal(inject('temporal'));
}
