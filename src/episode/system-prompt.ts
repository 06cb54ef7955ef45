// Builds the system prompt, a pure function of the task's variables and the tools. The date is the task's; no clock is read.
import type { SamplingPlan } from '../spec/records/parts.js';
import type { ToolSpec } from '../spec/records/task.js';
import type { ToolFormat } from './tool-formats/tool-format.js';
import { toolListText } from './tool-list.js';

interface SystemPromptInput {
  env_variables: Readonly<Record<string, string>>;
  tools: readonly ToolSpec[];
  sampling: Pick<SamplingPlan, 'system_prompt' | 'tools_format'>;
  format: Pick<ToolFormat, 'example'>;
  /** Quotes texts of tasks and environments, so that they cannot become control tokens. */
  quote: (text: string) => string;
}

export function systemPrompt(input: SystemPromptInput): string {
  return input.sampling.system_prompt === 'short' ? shortPrompt(input) : skyrlPrompt(input);
}

function shortPrompt({ env_variables, tools, sampling, format, quote }: SystemPromptInput): string {
  const variables = quotedValues(env_variables, quote);
  const date = variables['CURRENT_DATE'];
  const { CURRENT_DATE: _date, LOGGED_IN_USER: user, LOGGED_IN_NAME: name, ...rest } = variables;
  const who = user === undefined ? name : name === undefined ? user : `${name} (${user})`;
  const facts = [
    ...(date === undefined ? [] : [`Today is ${date}.`]),
    ...(who === undefined ? [] : [`You are ${who}.`]),
    ...contextLines(rest).map((line) => `${line}.`),
  ];
  return [
    ['Call one tool a turn, then say <done>.', ...facts].join(' '),
    format.example.short,
    quote(toolListText(tools, sampling.tools_format, { isShort: true })),
  ].join('\n');
}

function skyrlPrompt({ env_variables, tools, sampling, format, quote }: SystemPromptInput): string {
  const variables = quotedValues(env_variables, quote);
  const date = variables['CURRENT_DATE'];
  const context = contextLines(variables);
  const sections = [
    'You are a helpful agent. You complete the task by calling tools.',
    ...(date === undefined
      ? []
      : [
          `## Current Date\nToday is ${date}. A date without a year lies in the current year, or in the future if it would be past.`,
        ]),
    ...(context.length === 0
      ? []
      : [`## Environment Context\n${context.map((line) => `- ${line}`).join('\n')}`]),
    `## Available Tools\n${quote(toolListText(tools, sampling.tools_format))}`,
    `## Tool Call Format\n${format.example.skyrl}`,
    '## Error Handling\nWhen a call fails, read the message, and change what you do. Do not repeat a call with the same arguments.',
    '## Response Format\nEvery response ends with exactly one of: a tool call, or <done>. When the task is complete, give the final answer, then <done>. Never answer with a bare message, and never offer further help.',
  ];
  return sections.join('\n\n');
}

/** Facts other than the date: first the logged-in user, then the others by name. The order of keys in a file does not matter. */
function contextLines(variables: Readonly<Record<string, string>>): string[] {
  const { CURRENT_DATE: _date, LOGGED_IN_USER: user, LOGGED_IN_NAME: name, ...rest } = variables;
  return [
    ...(user === undefined ? [] : [`Logged in user ID: ${user}`]),
    ...(name === undefined ? [] : [`Logged in as: ${name}`]),
    ...Object.entries(rest)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, value]) => `${key}: ${value}`),
  ];
}

function quotedValues(
  variables: Readonly<Record<string, string>>,
  quote: (text: string) => string,
): Record<string, string> {
  return Object.fromEntries(Object.entries(variables).map(([key, value]) => [quote(key), quote(value)]));
}
