// The Temporal server that all files of a test run share. So each test must use its own workflow ids and task queues.
import { inject } from 'vitest';
import type {} from '../whole-run/temporal-setup.js';
import { connectTemporal, type ConnectedTemporal } from './temporal-server.js';

export function sharedTemporal(): Promise<ConnectedTemporal> {
  return connectTemporal(inject('temporal'));
}
