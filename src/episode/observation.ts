// Builds the text that the model reads after its turn.
import type { ContentBlock, ToolResult } from '../environments/environment.js';
import type { ToolFormat } from './tool-formats/tool-format.js';

/** A tool's result, cut to `maxChars` characters. If it is cut, the text says so. */
export function resultObservation(result: ToolResult, maxChars: number): string {
  const text = truncated(contentText(result.content), maxChars);
  return result.isError ? `Error: ${text}` : toolObservation(text);
}

/** Content as the model reads it, one block a line. An image is described, not shown. */
export function contentText(content: readonly ContentBlock[]): string {
  return content.map(blockText).join('\n');
}

function blockText(block: ContentBlock): string {
  if (block.type === 'text') return block.text;
  const kind = block.mime === '' ? '' : ` ${block.mime}`;
  return `[image${kind}, ${block.size} bytes]`;
}

/** Puts the usual words around a tool's result; demonstrations use the same words. */
export function toolObservation(text: string): string {
  return `Tool result:\n${text}`;
}

export function malformedCallObservation(problem: string, { example }: Pick<ToolFormat, 'example'>): string {
  return `Error: ${problem}. Use ${example.short}`;
}

export function noCallObservation({ example }: Pick<ToolFormat, 'example'>): string {
  return `No tool call found. Use ${example.short} or <done>.`;
}

/** The note after a result if the turn had further calls. */
export function otherCallsNote(others: number): string {
  if (others === 0) return '';
  const calls = others === 1 ? 'the other call' : `the ${others} other calls`;
  return `\nOnly one call a turn is carried out: ${calls} of this turn had no effect.`;
}

function truncated(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  // The cut must not separate a surrogate pair.
  const last = text.charCodeAt(maxChars - 1);
  const end = last >= 0xd800 && last <= 0xdbff ? maxChars - 1 : maxChars;
  return `${text.slice(0, end)}\n[TRUNCATED: ${end} of ${text.length} characters shown]`;
}
