// Parses `RUN@STEP` from the command line.

interface NamedPlace {
  name: string;
  /** Null if no step is named. */
  step: number | null;
}

export function parsePlace(text: string): NamedPlace {
  const [, name, step] = /^([^@]+)(?:@(.*))?$/s.exec(text) ?? [];
  if (name === undefined) throw new Error(`${JSON.stringify(text)} is not understood: give RUN@STEP`);
  if (step === undefined) return { name, step: null };
  if (!/^[0-9]{1,9}$/.test(step))
    throw new Error(
      `${JSON.stringify(step)} is not a step: give a whole number, 0 or more, as in ${name}@20`,
    );
  return { name, step: Number(step) };
}
