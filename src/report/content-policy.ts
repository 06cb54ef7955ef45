// The page's content security policy. A browser runs and styles only what the policy lists by its hash, whatever text the page contains.
import { createHash } from 'node:crypto';

/**
 * `strict-dynamic`: the page's one script may load the transcript files beside the page. No hash can name them, because a page may be
 * opened from a folder. Trusted types keep the script from loading anything else.
 */
export function contentPolicy(parts: { style: string; script: string | null }): string {
  const script =
    parts.script === null
      ? []
      : [
          `script-src ${hashOf(parts.script)} 'strict-dynamic'`,
          "require-trusted-types-for 'script'",
          'trusted-types longhaul',
        ];
  return [
    "default-src 'none'",
    `style-src ${hashOf(parts.style)}`,
    ...script,
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

function hashOf(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}
