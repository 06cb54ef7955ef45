// Reads the files of the stack as their programs would: docker-compose.yml merged and with variables replaced, systemd units, manifests.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';
import { repository } from '../support/repository.js';

export interface Service {
  image: string;
  command?: string[];
  entrypoint?: string[];
  environment?: Record<string, string | number>;
  restart?: string;
  ports?: string[];
  volumes?: string[];
  profiles?: string[];
  secrets?: string[];
  read_only?: boolean;
  healthcheck?: { test: string[] };
  depends_on?: Record<string, { condition: string }>;
  stop_grace_period?: string;
  security_opt?: string[];
  cap_drop?: string[];
}

export interface ComposeFile {
  services: Record<string, Service>;
  volumes: Record<string, null>;
  secrets: Record<string, { environment: string }>;
}

export const read = (path: string): string => readFileSync(join(repository, path), 'utf8');

/** The source of a compiled script; undefined if there is none. */
export function sourceOf(script: string): string | undefined {
  const source = script
    .replace(/^dist\/(examples\/)?/, (_, ours?: string) => ours ?? 'src/')
    .replace(/\.js$/, '.ts');
  return existsSync(join(repository, source)) ? source : undefined;
}

/** All files below a folder, relative to the checkout. */
export function filesIn(folder: string): string[] {
  return readdirSync(join(repository, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(repository.length + 1));
}

/** `variables`: the values of `.env`. Throws if a required one is missing, as Compose does. */
export function readCompose(variables: Readonly<Record<string, string>>): ComposeFile {
  return interpolated(parse(read('docker-compose.yml'), { merge: true }), variables) as ComposeFile;
}

/** Lines of the form `NAME=value`, including commented ones. */
export function readVariables(path: string): Map<string, { value: string; commented: boolean }> {
  const lines = [...read(path).matchAll(/^(#?)([A-Z][A-Z0-9_]*)=(.*)$/gm)];
  return new Map(lines.map(([, hash, name = '', value = '']) => [name, { value, commented: hash === '#' }]));
}

/** A meaningless value for every required variable. */
export function filledIn(): Record<string, string> {
  const needed = [...readVariables('.env.example')].filter(([, { commented }]) => !commented);
  return Object.fromEntries(
    needed.map(([name, { value }]) => [name, value || `made-up-${name.toLowerCase()}`]),
  );
}

/** The references that Compose replaces in a file: `${NAME}`, `${NAME:-otherwise}`, `${NAME:?message}`. */
const reference = /\$\$|\$\{([A-Z][A-Z0-9_]*)(?::([-?])((?:[^{}]|\{[^{}]*\})*))?\}/g;

export function variablesIn(text: string): { name: string; needed: boolean }[] {
  return [...text.matchAll(reference)].flatMap(([, name, kind]) =>
    name === undefined ? [] : [{ name, needed: kind !== '-' }],
  );
}

function interpolated(value: unknown, variables: Readonly<Record<string, string>>): unknown {
  if (typeof value === 'string')
    return value.replace(reference, (whole, name?: string, kind?: string, rest?: string) => {
      if (name === undefined) return '$';
      const given = variables[name];
      if (given) return given;
      if (kind === '-') return rest ?? '';
      throw new Error(`${whole}: ${rest ?? 'not set'}`);
    });
  if (Array.isArray(value)) return value.map((one) => interpolated(one, variables));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, interpolated(one, variables)]));
}

export interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  spec?: Record<string, unknown>;
}

/** All manifests of infra/kubernetes except the kustomization, which is not an object of a cluster. */
export function readManifests(): { file: string; manifest: Manifest }[] {
  return filesIn('infra/kubernetes')
    .filter((file) => file.endsWith('.yaml') && !file.endsWith('kustomization.yaml'))
    .flatMap((file) =>
      parseAllDocuments(read(file)).map((document) => {
        if (document.errors.length > 0) throw new Error(`${file}: ${document.errors.join('; ')}`);
        return { file, manifest: document.toJS() as Manifest };
      }),
    );
}

/** The settings of a unit, in order. A name may occur more than once. */
export function readUnit(path: string): { name: string; value: string }[] {
  return [...read(path).matchAll(/^([A-Z][A-Za-z]+)=(.*)$/gm)].map(([, name = '', value = '']) => ({
    name,
    value,
  }));
}

/** Names of the variables that any Longhaul process reads. */
export function knownVariables(): Set<string> {
  const sources = filesIn('src').filter((file) => file.endsWith('.ts'));
  const engine = filesIn('native/src').filter((file) => file.endsWith('.cc'));
  return new Set([
    ...sources.flatMap((file) =>
      [...read(file).matchAll(/\b(?:LONGHAUL|OTEL|SLACK|WANDB)_[A-Z_]+/g)].map(([name]) => name),
    ),
    ...engine.flatMap((file) => [...read(file).matchAll(/getenv\("(\w+)"\)/g)].map(([, name]) => name ?? '')),
  ]);
}
