// Starts the Temporal server that all files of a test run share.
import type { TestProject } from 'vitest/node';
import { startTemporal } from '../servers/temporal-server.js';

declare module 'vitest' {
  interface ProvidedContext {
    /** `host:port` of the shared Temporal server. */
    temporal: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const temporal = await startTemporal();
  project.provide('temporal', temporal.address);
  return () => temporal.stop();
}
