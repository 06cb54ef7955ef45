import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { freePort, isPortFree } from '../../src/stack/free-port.js';

describe('a free port', () => {
  it('is outside the range that the system gives to outgoing connections', async () => {
    const range = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim().split(/\s+/);
    const [first, last] = range.map(Number) as [number, number];
    for (let time = 0; time < 200; time++) {
      const port = await freePort();
      expect(port < first || port > last, `${port} in ${first}–${last}`).toBe(true);
      expect(await isPortFree(port)).toBe(true);
    }
  });
});
