// What a browser may do with the page: run and draw only what is listed here by its hash, for any text in it.
import { createHash } from 'node:crypto';

/**
 * `strict-dynamic`: the page's one script may load the files of transcripts beside it, which no hash can name for a page opened from a
 * folder; with trusted types it can load no others.
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
