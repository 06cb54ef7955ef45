// Changes a record and its checksum so that they agree, as a person who knows the rules could do.
import { canonicalText } from '../../src/store/records/canonical.js';
import { sha256Hex } from '../../src/base/sha256.js';

export function signedAgain(text: string): string {
  const { sum: _, ...record } = JSON.parse(text) as { sum?: string };
  return canonicalText({ ...record, sum: sha256Hex(canonicalText(record)) });
}
