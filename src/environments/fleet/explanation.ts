// What a verifier printed, as a short text for people.

const mostChars = 1000;
const lastLines = 10;

/** What the verifier found wrong and right, or else the last lines that it printed; empty if it printed nothing. */
export function explanationOf(stdout: string): string {
  const wrong = accumulated(stdout, 'ERROR');
  const right = accumulated(stdout, 'SUCCESS');
  if (wrong === null && right === null)
    return lastChars(stdout.trim().split('\n').slice(-lastLines).join('\n'));
  const parts = [wrong ? `wrong: ${wrong}` : '', right ? `right: ${right}` : ''];
  return firstChars(parts.filter(Boolean).join('\n'));
}

/** The items of a printed list between the marks, or null without such a list. Python or JSON wrote it. */
function accumulated(stdout: string, which: 'ERROR' | 'SUCCESS'): string | null {
  const mark = `${which}_ACCUMULATOR`;
  const blocks = [...stdout.matchAll(new RegExp(`>>> ${mark} >>>\\n(.*?)\\n?<<< ${mark} <<<`, 'gsu'))];
  if (blocks.length === 0) return null;
  return blocks.flatMap(([, block]) => itemsOf(block?.trim() ?? '')).join('; ');
}

function itemsOf(list: string): string[] {
  const strings = [...list.matchAll(/'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)"/gsu)];
  if (strings.length === 0) return list === '[]' ? [] : [list];
  return strings.map(([, single, double]) =>
    (single ?? double ?? '').replace(/\\n/g, ' ').replace(/\\(['"\\])/g, '$1'),
  );
}

function firstChars(text: string): string {
  return text.length <= mostChars ? text : `${text.slice(0, mostChars - 1)}…`;
}

function lastChars(text: string): string {
  return text.length <= mostChars ? text : `…${text.slice(1 - mostChars)}`;
}
