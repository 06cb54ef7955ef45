// How many tokens an environment's tools take of every prompt of a run.
import type { Tokenizer } from '../../episode/tokenizer.js';
import { toolListText } from '../../episode/tool-list.js';
import type { ToolSpec } from '../../spec/records/task.js';
import type { RunSpec } from '../../spec/run-spec.js';

/** Usual for English and JSON, where the tokenizer cannot be read here. */
const charactersPerToken = 4;
/** From this share of the longest prompt on, a shorter list is proposed. */
const largeShare = 0.25;

type Formats = RunSpec['generator']['tools_format'];

/** `tokenizer`: null if it cannot be read here. Throws an Error with the fix if the tools leave no room in a prompt. */
export async function toolTokensText(
  tools: readonly ToolSpec[],
  { generator }: Pick<RunSpec, 'generator'>,
  tokenizer: Pick<Tokenizer, 'encodeLong'> | null,
): Promise<string> {
  const { tools_format, system_prompt, max_input_length: most } = generator;
  const tokensIn = async (format: Formats): Promise<number> => {
    const list = toolListText(tools, format, { isShort: system_prompt === 'short' });
    return tokenizer
      ? (await tokenizer.encodeLong(list)).length
      : Math.ceil(list.length / charactersPerToken);
  };
  const count = await tokensIn(tools_format);
  const about = tokenizer ? '' : 'about ';
  const said = `${tools.length} ${tools.length === 1 ? 'tool takes' : 'tools take'} ${about}${count} tokens of every prompt`;
  const isLarge = count > largeShare * most && tools_format !== 'signatures';
  const shorter = isLarge ? `tools_format: signatures takes ${about}${await tokensIn('signatures')}` : null;
  if (count >= most)
    throw new Error(
      `${said}, and generator.max_input_length is ${most}: raise it${shorter ? `, or shorten the list (${shorter})` : ''}`,
    );
  return `${said}, which may have ${most}${shorter ? ` (${shorter})` : ''}`;
}
