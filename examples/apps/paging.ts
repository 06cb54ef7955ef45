// Pages of search results, and the calls that reach a row on a later page.
import type { ToolCall } from './task-row.js';
import type { Profile } from './app.js';

/** Rows of a page of search results. */
const searchSize: Readonly<Record<Profile, number>> = { default: 3, wide: 10 };
/** Rows of a page of a list. */
export const listSize: Readonly<Record<Profile, number>> = { default: 5, wide: 20 };

export const pageParameter = {
  type: 'integer',
  description: 'Page, from 1',
  minimum: 1,
  maximum: 1000,
  optional: true,
} as const;

/** A page of search results, with the total and the next page if there are more. */
export function searchPage(
  profile: Profile,
  name: string,
  matches: readonly object[],
  page: number | undefined,
): object {
  return pageOf(name, matches, page ?? 1, searchSize[profile], profile === 'wide');
}

/** A page of a list, always with the total. */
export function listPage(
  profile: Profile,
  name: string,
  rows: readonly object[],
  page: number | undefined,
): object {
  return pageOf(name, rows, page ?? 1, listSize[profile], true);
}

function pageOf(
  name: string,
  rows: readonly object[],
  page: number,
  size: number,
  isCounted: boolean,
): object {
  const shown = rows.slice((page - 1) * size, page * size);
  const counted = isCounted || shown.length < rows.length ? { total: rows.length } : {};
  return { [name]: shown, ...counted, ...(page * size < rows.length ? { next: page + 1 } : {}) };
}

/** The search calls up to the page that shows `id`; `matches` are the ids that the search finds, in its order. */
export function searchCalls(
  profile: Profile,
  call: ToolCall,
  matches: readonly string[],
  id: string,
): ToolCall[] {
  const place = matches.indexOf(id);
  if (place < 0) throw new RangeError(`${call.name} does not find ${id}`);
  return Array.from({ length: 1 + Math.floor(place / searchSize[profile]) }, (_, i) =>
    i === 0 ? call : { ...call, arguments: { ...call.arguments, page: i + 1 } },
  );
}
