// The marks of a turn that all formats share.

/** What opens and closes a block of thinking. */
export const thinkingMarks = [
  ['<think>', '</think>'],
  ['<thinking>', '</thinking>'],
  ['[THINK]', '[/THINK]'],
] as const;

/** Names the channel of a message of gpt-oss: one of them is for thinking. */
export const channelMark = '<|channel|>';

/** With it a turn says that the task is finished. */
export const doneMark = '<done>';
