// An imperfect teacher: its calls are always well-formed, and each of its decisions is right with a fixed probability. So the policy never
// learns that a decision is certain, and GRPO has something left to improve.
import type { ToolCall } from './task-row.js';
import type { App, Scenario, TeacherSkill } from './app.js';
import type { Draw } from './random.js';

const usualSkill: TeacherSkill = {
  tool: 0.6,
  argument: 0.85,
  row: 0.7,
  branch: 0.6,
  flow: 0.85,
  answer: 0.7,
};

/** The calls that the teacher makes in this scenario. */
export function teacherCalls(app: App, scenario: Scenario, draw: Draw): ToolCall[] {
  const { oracle, mistakes } = scenario;
  const skill = app.teacherSkill ?? usualSkill;
  const search = oracle.slice(0, -1);
  let act = oracle.at(-1) as ToolCall;
  if (mistakes.branch && !draw.chance(skill.branch)) act = mistakes.branch;
  if (!draw.chance(skill.tool)) {
    act = otherTool(app, act, draw.pick(mistakes.tools), draw);
  } else if (mistakes.argument && !draw.chance(skill.argument)) {
    const { name, values } = mistakes.argument;
    act = { ...act, arguments: { ...act.arguments, [name]: draw.pick(values) } };
  }
  if (mistakes.rows && mistakes.rows.length > 0 && !draw.chance(skill.row)) {
    act = withRow(act, draw.pick(mistakes.rows));
  }
  if (draw.chance(skill.flow)) return [...search, act];
  // A mistake in the flow: the teacher stops before the last call, or makes it twice.
  return draw.chance(0.5) ? search : [...search, act, act];
}

/** The answer that the teacher gives at the end; empty if the task asks nothing. */
export function teacherAnswer(app: App, { question }: Scenario, draw: Draw): string {
  if (!question) return '';
  const isRight = draw.chance((app.teacherSkill ?? usualSkill).answer);
  return String(isRight ? question.value : draw.pickOther(question.others, question.value));
}

// A call of a wrong tool keeps the arguments that both tools have, and copies texts of the right call, so it still teaches copying.
function otherTool(app: App, call: ToolCall, name: string, draw: Draw): ToolCall {
  const schema = app.tools.find((spec) => spec.name === name)?.input_schema;
  const [first, ...rest] = Object.values(call.arguments).filter((value) => typeof value === 'string');
  const pairs = (schema?.required ?? []).map((key) => {
    const { type, enum: values } = schema?.properties[key] ?? {};
    const copied = key === 'id' || key === 'query' ? first : rest.at(-1);
    const fresh = type !== 'string' || values !== undefined || copied === undefined;
    return [key, call.arguments[key] ?? (fresh ? app.samples[key]?.(draw) : copied)] as const;
  });
  return { name, arguments: Object.fromEntries(pairs) };
}

function withRow(call: ToolCall, id: string): ToolCall {
  const prefix = id.slice(0, 4);
  const pairs = Object.entries(call.arguments).map(
    ([key, value]) => [key, typeof value === 'string' && value.startsWith(prefix) ? id : value] as const,
  );
  return { ...call, arguments: Object.fromEntries(pairs) };
}
