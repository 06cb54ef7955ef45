// The marks of a turn that all formats share.

/** The tags that open and close a block of thinking. */
export const thinkingMarks = [
  ['<think>', '</think>'],
  ['<thinking>', '</thinking>'],
  ['[THINK]', '[/THINK]'],
] as const;

/** The token before the name of a channel in gpt-oss; one of the channels is for thinking. */
export const channelMark = '<|channel|>';

/** The mark with which a turn says that the task is finished. */
export const doneMark = '<done>';
