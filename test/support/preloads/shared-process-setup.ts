// Holds files that share a process to leave it as they found it: what one of them leaves behind is there for the next.
import { afterAll, expect, vi } from 'vitest';

/** A package of AWS notes there that it has warned. */
const noted = { AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED: undefined };
const environment = { ...process.env, ...noted };
const folder = process.cwd();
afterAll(() => {
  expect(vi.isFakeTimers(), 'the file leaves false timers on').toBe(false);
  expect({ ...process.env, ...noted }, 'the file leaves the environment changed').toEqual(environment);
  expect(process.cwd(), 'the file leaves the working directory changed').toBe(folder);
});
