// Compares a final answer with what a task asks for. An answer that lists the candidates proves nothing, so it must name the right one and no
// other: texts are compared as whole words without case and punctuation, numbers by value, `1,240.00` as 1240.
import type { Question } from './app.js';

/** What is wrong with the answer, for people; undefined if nothing is. */
export function answerProblem(answer: string, question: Question, prompt: string): string | undefined {
  const { value } = question;
  const words = wordsOf(answer);
  const wanted = wordsOf(String(value));
  if (!contains(words, wanted)) return `the answer should name ${JSON.stringify(value)}`;
  const extra = typeof value === 'number' ? otherNumber(words, value, prompt) : otherName(words, question);
  return extra === undefined
    ? undefined
    : `the answer names ${JSON.stringify(extra)} besides ${JSON.stringify(value)}`;
}

/** The answer may repeat numbers of the prompt. */
function otherNumber(words: readonly string[], value: number, prompt: string): string | undefined {
  const allowed = new Set([String(value), ...wordsOf(prompt)]);
  return words.find((word) => isNumber(word) && !allowed.has(word));
}

function otherName(words: readonly string[], { value, others }: Question): string | number | undefined {
  return others.find((other) => other !== value && contains(words, wordsOf(String(other))));
}

function wordsOf(text: string): string[] {
  return (
    text
      // Before the normal form makes plain spaces of the narrow ones.
      .replace(/(\d)[\u00a0\u202f\u2009'’,](?=\d{3}(?!\d))/g, '$1')
      .normalize('NFKC')
      .toLowerCase()
      .match(/\p{N}+\.\p{N}+(?![\p{L}\p{N}.])|[\p{L}\p{N}]+/gu)
      ?.map((word) => (isNumber(word) ? String(Number(word)) : word)) ?? []
  );
}

function isNumber(word: string): boolean {
  return /^\d+(\.\d+)?$/.test(word);
}

function contains(words: readonly string[], wanted: readonly string[]): boolean {
  return words.some((_, start) => wanted.every((word, i) => words[start + i] === word));
}
