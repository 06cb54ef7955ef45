// Changes environment variables of this process for a while.

/** Undefined removes a variable. Returns a function that restores the old values. */
export function environmentWith(changes: Readonly<Record<string, string | undefined>>): () => void {
  const before = Object.keys(changes).map((name) => [name, process.env[name]] as const);
  for (const [name, value] of Object.entries(changes)) set(name, value);
  return () => {
    for (const [name, value] of before) set(name, value);
  };
}

function set(name: string, value: string | undefined): void {
  if (value === undefined) delete process.env[name];
  else process.env[name] = value;
}
