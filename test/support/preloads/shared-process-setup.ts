// Checks that a file leaves its shared process unchanged, because the next file runs in the same process.
import { afterAll, expect, vi } from 'vitest';

/** An AWS package sets this variable when it has printed its warning. */
const noted = { AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED: undefined };
const environment = { ...process.env, ...noted };
const folder = process.cwd();
afterAll(() => {
  expect(vi.isFakeTimers(), 'the file leaves false timers on').toBe(false);
  expect({ ...process.env, ...noted }, 'the file leaves the environment changed').toEqual(environment);
  expect(process.cwd(), 'the file leaves the working directory changed').toBe(folder);
});
