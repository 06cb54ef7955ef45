// Connects to a Tinker server with the key of this process.
import { keepSecret } from '../../base/known-secrets.js';
import { TinkerClient } from '../../engine/tinker/futures.js';
import { TinkerService } from '../../engine/tinker/service.js';

/** Reads the key from `TINKER_API_KEY`. */
export function openTinkerService(url: string): TinkerService {
  const key = process.env['TINKER_API_KEY'];
  if (key) keepSecret(key);
  return new TinkerService(new TinkerClient({ url, ...(key ? { key } : {}) }));
}
