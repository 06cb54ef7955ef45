/** The forms in which models write tool calls; `episode/tool-formats/` reads them. */
export type ToolFormatName = (typeof toolFormatNames)[number];
export const toolFormatNames = ['hermes', 'qwen_xml', 'llama_json', 'mistral', 'gpt_oss'] as const;
