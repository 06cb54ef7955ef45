// The function of a verifier that Fleet calls, found without running Python.
//
// Fleet's SDK runs the code and takes the first name of the module that is bound to a function which this code defines. Names count in the
// order in which they were first bound. Here this is read from the lines without indentation, so names that an `if` or `try` binds are missed.
// A lambda is skipped: the SDK would ask for a function named `<lambda>`, which no module has.
import { EnvironmentError } from '../environment.js';

interface VerifierEntry {
  name: string;
  /** True if the function can be called with this keyword. */
  accepts: (keyword: string) => boolean;
  /** Parameters without a default, except the first, which is the environment. */
  required: readonly string[];
}

const identifier = '[\\p{ID_Start}_]\\p{ID_Continue}*';
const definition = new RegExp(`^(?:async\\s+)?def\\s+(${identifier})`, 'u');
const classDefinition = new RegExp(`^class\\s+(${identifier})`, 'u');
const assignment = new RegExp(`^(${identifier})\\s*(?::[^=]*)?=(?!=)\\s*(.*)$`, 'su');
const identifierOnly = new RegExp(`^${identifier}$`, 'u');
const leadingIdentifier = new RegExp(`^${identifier}`, 'u');

/** Throws an `EnvironmentError` if the code defines no function. */
export function verifierEntry(code: string): VerifierEntry {
  // By name: the function that it is bound to, or null for any other value.
  const names = new Map<string, VerifierEntry | null>();
  let firstDecorated: VerifierEntry | undefined;
  let decorated = false;
  for (const line of topLevelLines(code)) {
    if (line.startsWith('@')) {
      // The SDK removes its own decorator.
      decorated ||= !line.startsWith('@verifier(');
      continue;
    }
    const defined = definition.exec(line)?.[1];
    if (defined !== undefined) {
      const entry = { name: defined, ...parametersOf(line) };
      // Functions with other decorators do not count, because these mostly return an object, or a function that a library defines.
      names.set(defined, decorated ? null : entry);
      if (decorated) firstDecorated ??= entry;
    } else bindOthers(line, names);
    decorated = false;
  }
  for (const value of names.values()) if (value) return value;
  if (firstDecorated) return firstDecorated;
  throw new EnvironmentError('failed', 'grade', 'a verifier without a function: its code defines none');
}

function bindOthers(line: string, names: Map<string, VerifierEntry | null>): void {
  const classNamed = classDefinition.exec(line)?.[1];
  if (classNamed !== undefined) names.set(classNamed, null);
  const imported = /^(from\s.*?\s)?import\s(.*)$/su.exec(line)?.[2];
  for (const part of imported?.replace(/[()]/g, '').split(',') ?? []) {
    const name = leadingIdentifier.exec(part.trim().replace(/^.*\sas\s+/su, ''))?.[0];
    if (name !== undefined) names.set(name, null);
  }
  for (const name of /^del\s+(.*)$/su.exec(line)?.[1]?.split(',') ?? []) names.delete(name.trim());
  const targets: string[] = [];
  let value = line;
  for (let found = assignment.exec(value); found; found = assignment.exec(value)) {
    targets.push(found[1] as string);
    value = (found[2] as string).trim();
  }
  const function_ = identifierOnly.test(value) ? (names.get(value) ?? null) : null;
  for (const target of targets) names.set(target, function_);
}

/** Which arguments the function of this `def` line takes. */
function parametersOf(line: string): Omit<VerifierEntry, 'name'> {
  const parameters: string[] = [];
  const required: string[] = [];
  let isFirst = true;
  let anyKeyword = false;
  for (const part of splitAtCommas(line.slice(line.indexOf('(') + 1))) {
    if (part.startsWith('**')) anyKeyword = true;
    // Parameters before a slash can only be passed by position.
    else if (part === '/') parameters.length = 0;
    else if (!part.startsWith('*') && part !== '') {
      const name = leadingIdentifier.exec(part)?.[0] ?? '';
      parameters.push(name);
      if (!isFirst && !part.includes('=')) required.push(name);
      isFirst = false;
    }
  }
  return { accepts: (keyword) => anyKeyword || parameters.includes(keyword), required };
}

/** The parts up to the bracket that closes the list. */
function splitAtCommas(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let begin = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text.charAt(at);
    if ('([{'.includes(char)) depth += 1;
    const closes = ')]}'.includes(char);
    if (depth === 0 && (closes || char === ',')) {
      parts.push(text.slice(begin, at).trim());
      begin = at + 1;
      if (closes) return parts;
    }
    if (closes) depth -= 1;
  }
  return parts;
}

/**
 * The logical lines without indentation. Comments are left out, each string is replaced by `''`, and a line that continues within brackets or
 * after a backslash is one line.
 */
function topLevelLines(code: string): string[] {
  const lines: string[] = [];
  let line = '';
  let depth = 0;
  const tokens =
    /(?<string>'''(?:\\.|.)*?(?:'''|$)|"""(?:\\.|.)*?(?:"""|$)|'(?:\\.|[^'\\\n])*'?|"(?:\\.|[^"\\\n])*"?)|(?<comment>#[^\n]*)|(?<joined>\\\n)|(?<end>\n)|(?<other>.)/gsu;
  const endLine = (): void => {
    if (/^\S/u.test(line)) lines.push(line.trimEnd());
    line = '';
  };
  for (const { groups } of code
    .replace(/^\ufeff/u, '')
    .replace(/\r\n?/g, '\n')
    .matchAll(tokens)) {
    const { string, comment, joined, end, other } = groups as Record<string, string | undefined>;
    if (string !== undefined) line += "''";
    else if (joined !== undefined || (end !== undefined && depth > 0)) line += ' ';
    else if (end !== undefined) endLine();
    else if (comment === undefined && other !== undefined) {
      if ('([{'.includes(other)) depth += 1;
      if (')]}'.includes(other)) depth = Math.max(0, depth - 1);
      line += other;
    }
  }
  endLine();
  return lines;
}
