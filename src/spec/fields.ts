// Schemas of values that both run specs and sweeps use.
import { z } from 'zod';
import type { NumberRange } from './records/live-ranges.js';

export const name = z.string().regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/, {
  error: 'must have 1 to 64 letters, digits, ".", "_" or "-", and not start with a dot',
});
export const runId = z.string().regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}(~([2-9]|[1-9][0-9]{1,8}))?$/, {
  error: 'must be the id of a run: a name, followed by "~2", "~3", … after rewinds',
});
export const text = z.string().min(1);
export const count = z.int().min(1);
export const countOrZero = z.int().min(0);
export const positive = z.number().gt(0);
export const share = z.number().min(0).max(1);
export const betas = z.tuple([z.number().min(0).lt(1), z.number().min(0).lt(1)]);
export const seed = z.int().min(0).max(Number.MAX_SAFE_INTEGER);
export const notNegative = z.number().min(0);

export function inRange({ above, least, most, whole }: NumberRange): z.ZodNumber {
  let field: z.ZodNumber = whole ? z.int() : z.number();
  if (above !== undefined) field = field.gt(above);
  if (least !== undefined) field = field.min(least);
  return most === undefined ? field : field.max(most);
}

/** The name of a variable that holds a secret. */
export const variableName = (what: 'token' | 'headers' | 'key') =>
  z
    .string()
    // `refine`, not `regex`: the message of `regex` would repeat the text, which may be the secret.
    .refine((variable) => /^[A-Z_][A-Z0-9_]{0,63}$/.test(variable), {
      error:
        `must be the name of an environment variable, in capitals, such as TRACKER_${what.toUpperCase()}, and never the ${what} itself: ` +
        'export the variable where the workers run',
    });
