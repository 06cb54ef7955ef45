// A changed record under a sum that agrees with it: what somebody writes who knows the rules.
import { canonicalText, sha256Hex } from '../../src/store/records/canonical.js';

export function signedAgain(text: string): string {
  const { sum: _, ...record } = JSON.parse(text) as { sum?: string };
  return canonicalText({ ...record, sum: sha256Hex(canonicalText(record)) });
}
