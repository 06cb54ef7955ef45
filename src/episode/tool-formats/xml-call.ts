// Reads a call of Qwen3-Coder's form: `<function=name>`, `<parameter=key>` newline value newline `</parameter>` …, `</function>`.
import type { ToolSpec } from '../../spec/records/task.js';
import { valueOfType } from './typed-value.js';
import type { ReadCall } from './turn-piece.js';

const functionTag = /<function=([^>\n]+)>/y;
const parameterTag = /\s*<parameter=([^>\n]+)>/y;
const functionEnd = /\s*<\/function>/y;
/** A closing tag within a value is followed by other text. */
const parameterEnd = /<\/parameter>(?=\s*(?:<parameter=|<\/function>|<\/tool_call>|$))/g;

/** `start`: index of `<function=`. `end`: index behind what was read. */
export function readXmlCall(
  text: string,
  start: number,
  tools: readonly ToolSpec[],
): { read: ReadCall; end: number } {
  functionTag.lastIndex = start;
  const name = functionTag.exec(text)?.[1]?.trim();
  if (!name) return failed('the tag <function=NAME> has no name', start);
  const schema = tools.find((tool) => tool.name === name)?.input_schema;
  const given: [string, unknown][] = [];
  let position = functionTag.lastIndex;
  for (;;) {
    functionEnd.lastIndex = position;
    if (functionEnd.exec(text))
      return { read: { call: { name, arguments: Object.fromEntries(given) } }, end: functionEnd.lastIndex };
    parameterTag.lastIndex = position;
    const key = parameterTag.exec(text)?.[1]?.trim();
    if (!key)
      return failed('the tool call needs <parameter=NAME> … </parameter>, then </function>', position);
    if (given.some(([known]) => known === key))
      return failed(`the parameter "${key}" stands twice`, position);
    parameterEnd.lastIndex = parameterTag.lastIndex;
    const end = parameterEnd.exec(text);
    if (!end) return failed(`the parameter "${key}" has no </parameter>`, position);
    const written = text
      .slice(parameterTag.lastIndex, end.index)
      .replace(/^\r?\n/, '')
      .replace(/\r?\n$/, '');
    const value = valueOfType(written, schema, key);
    if ('problem' in value) return failed(`the parameter "${key}" ${value.problem}`, position);
    given.push([key, value.value]);
    position = parameterEnd.lastIndex;
  }
}

function failed(problem: string, end: number): { read: ReadCall; end: number } {
  return { read: { problem }, end };
}
