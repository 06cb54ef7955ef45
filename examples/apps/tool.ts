// Each tool is declared once: the model reads the same JSON Schema by which the arguments are checked.
import type { ObjectSchema, ToolSpec } from './task-row.js';
import type { ToolArguments, ToolContext, ToolHandler } from './app.js';

type TextParameter = { type: 'string'; description: string; enum?: readonly string[]; optional?: true };
type IntegerParameter = {
  type: 'integer';
  description: string;
  minimum: number;
  maximum: number;
  optional?: true;
};
type Parameter = TextParameter | IntegerParameter;
type Parameters = Readonly<Record<string, Parameter>>;

type ValueOf<P extends Parameter> = P extends { type: 'integer' } ? number : string;
type ArgumentsOf<P extends Parameters> = {
  readonly [K in keyof P]: P[K] extends { optional: true } ? ValueOf<P[K]> | undefined : ValueOf<P[K]>;
};

export interface Tool {
  spec: ToolSpec;
  handler: ToolHandler;
}

const maxTextLength = 400;

/** Declares a tool. If it `writes`, it runs in a transaction, which an error rolls back. */
export function tool<const P extends Parameters>(definition: {
  name: string;
  description: string;
  writes: boolean;
  parameters: P;
  run: (context: ToolContext, args: ArgumentsOf<P>) => object;
}): Tool {
  const properties: ObjectSchema['properties'] = {};
  const required: string[] = [];
  for (const [name, { optional, ...schema }] of Object.entries(definition.parameters)) {
    properties[name] = schema;
    if (!optional) required.push(name);
  }
  const { writes, run } = definition;
  return {
    spec: {
      name: definition.name,
      description: definition.description,
      input_schema: { type: 'object', properties, required, additionalProperties: false },
    },
    // `argumentProblem` has checked the arguments against the parameters from which this type is made.
    handler: { writes, run: (context, args) => run(context, args as unknown as ArgumentsOf<P>) },
  };
}

/** What is wrong with a call's arguments; undefined if nothing is. Only own properties count. */
export function argumentProblem(spec: ToolSpec, args: unknown): string | undefined {
  if (typeof args !== 'object' || args === null || Array.isArray(args)) return 'arguments must be an object';
  const { properties, required = [] } = spec.input_schema;
  for (const name of required) if (!Object.hasOwn(args, name)) return `missing argument ${name}`;
  for (const [name, value] of Object.entries(args as ToolArguments)) {
    const schema = Object.hasOwn(properties, name) ? (properties[name] as Parameter) : undefined;
    if (!schema) return `unknown argument ${name.slice(0, 40)}`;
    const problem = valueProblem(schema, value);
    if (problem) return `${name} ${problem}`;
  }
  return undefined;
}

function valueProblem(schema: Parameter, value: unknown): string | undefined {
  if (schema.type === 'integer') {
    const { minimum, maximum } = schema;
    if (typeof value !== 'number' || !Number.isInteger(value)) return 'must be an integer';
    return value < minimum || value > maximum ? `must be between ${minimum} and ${maximum}` : undefined;
  }
  if (typeof value !== 'string') return 'must be a string';
  if (value.trim() === '') return 'must not be empty';
  if (value.length > maxTextLength) return `must have at most ${maxTextLength} characters`;
  if (schema.enum && !schema.enum.includes(value)) return `must be one of ${schema.enum.join(', ')}`;
  return undefined;
}
