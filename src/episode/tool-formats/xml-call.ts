// Reads a call of Qwen3-Coder's form: `<function=name>`, `<parameter=key>` newline value newline `</parameter>` …, `</function>`.
import type { JsonSchemaObject, ToolSpec } from '../../spec/records/task.js';
import { Places } from './places.js';
import { propertiesOf } from '../schema-type.js';
import { valueOfType } from './typed-value.js';
import type { ReadCall } from './turn-piece.js';

const functionTag = /<function=([^<>\n]+)>/y;
const parameterTag = /\s*<parameter=([^<>\n]+)>/y;
const functionEnd = /\s*<\/function>/y;
/** A closing tag within a value is followed by other text. */
const parameterEnd = /<\/parameter>(?=\s*(?:<parameter=|<\/function>|<\/tool_call>|$))/g;
/** A tag at the beginning of a line, which ends a value whose closing tag was forgotten. */
const nextTag = /\r?\n[ \t]*<(?:parameter=([^<>\n]+)|function=[^<>\n]+)>/g;

interface ReadXmlCall {
  read: ReadCall;
  /** Index after the text that was read. */
  end: number;
}

export class XmlCalls {
  readonly #closings: Places;

  constructor(
    private readonly text: string,
    private readonly tools: readonly ToolSpec[],
  ) {
    this.#closings = new Places(text, parameterEnd);
  }

  /** `start`: index of `<function=`. */
  at(start: number): ReadXmlCall {
    const { text, tools } = this;
    functionTag.lastIndex = start;
    const name = nameIn(functionTag.exec(text));
    if (!name) return failed('the tag <function=NAME> has no name', start);
    const schema = tools.find((tool) => tool.name === name)?.input_schema;
    const given = new Map<string, unknown>();
    let position = functionTag.lastIndex;
    for (;;) {
      functionEnd.lastIndex = position;
      if (functionEnd.exec(text))
        return {
          read: { call: { name, arguments: Object.fromEntries(given) } },
          end: functionEnd.lastIndex,
        };
      parameterTag.lastIndex = position;
      const key = nameIn(parameterTag.exec(text));
      if (!key)
        return failed('the tool call needs <parameter=NAME> … </parameter>, then </function>', position);
      const begin = parameterTag.lastIndex;
      const found = this.#valueEnd(begin, schema, given, key);
      if (!found) return failed(`the parameter "${key}" has no </parameter>`, position);
      const [end, next] = found;
      if (given.has(key)) return failed(`the parameter "${key}" stands twice`, next);
      const value = valueOfType(withoutFrame(text.slice(begin, end)), schema, key);
      if ('problem' in value) return failed(`the parameter "${key}" ${value.problem}`, next);
      given.set(key, value.value);
      position = next;
    }
  }

  /** The end of the value that begins at `begin`, and the index after its closing tag; null if it has none. */
  #valueEnd(
    begin: number,
    schema: JsonSchemaObject | undefined,
    given: ReadonlyMap<string, unknown>,
    key: string,
  ): [end: number, next: number] | null {
    const closing = this.#closings.from(begin);
    if (closing === undefined) return null;
    const known = Object.keys(propertiesOf(schema));
    for (const { index, 1: other } of this.text.slice(begin, closing).matchAll(nextTag)) {
      // The value has reached the next call.
      if (other === undefined) return null;
      const name = other.trim();
      // The closing tag was forgotten. As in vLLM's parser, the next parameter ends the value; a tag that is no parameter's is text.
      const isNext = known.length === 0 || known.includes(name);
      if (isNext && name !== key && !given.has(name)) return [begin + index, begin + index];
    }
    return [closing, closing + '</parameter>'.length];
  }
}

/** The value without the line breaks around it, which belong to the form. */
function withoutFrame(written: string): string {
  const isWindows = written.startsWith('\r\n');
  return written.replace(/^\r?\n/, '').replace(isWindows ? /\r?\n$/ : /\n$/, '');
}

/** A name without quotes, because models may also write it in quotes, as in XML. */
function nameIn(tag: RegExpExecArray | null): string | undefined {
  return tag?.[1]?.trim().replace(/^(["'])(.*)\1$/, '$2');
}

function failed(problem: string, end: number): ReadXmlCall {
  return { read: { problem }, end };
}
