// Reads the profile of the `temporal` CLI: `temporal.toml` and TEMPORAL_* variables. Errors name its mistakes, but never its keys.
import { existsSync } from 'node:fs';
import { type ClientConnectConfig, loadClientConfigProfile, toClientOptions } from '@temporalio/envconfig';

/** Throws an error that says what is wrong and where to fix it. */
export function readProfile(env: NodeJS.ProcessEnv): ClientConnectConfig {
  const file = env['TEMPORAL_CONFIG_FILE'];
  if (file !== undefined && !existsSync(file)) {
    throw new Error(`TEMPORAL_CONFIG_FILE names ${file}, which does not exist; correct it, or unset it`);
  }
  try {
    const profile = loadClientConfigProfile({ overrideEnvVars: defined(env) });
    const { clientCert, clientKey } = profile.tls ?? {};
    if ((clientCert === undefined) !== (clientKey === undefined)) {
      throw new Error(
        `the Temporal profile has a client ${clientCert ? 'certificate without its key' : 'key without its certificate'}; ` +
          'give both with TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH, or in the profile',
      );
    }
    return toClientOptions(profile);
  } catch (error) {
    throw readable(error as ProfileError, env);
  }
}

/** Error of a missing file, or of text that is not TOML. */
type ProfileError = NodeJS.ErrnoException & { line?: number; codeblock?: string };

function readable(error: ProfileError, env: NodeJS.ProcessEnv): Error {
  const file = env['TEMPORAL_CONFIG_FILE'] ?? 'temporal.toml of the Temporal CLI';
  // The parser's message shows the lines around a mistake, and these may contain the key.
  if (error.codeblock !== undefined)
    return new Error(
      `${file} is not valid TOML: see line ${error.line ?? '?'}; \`temporal config list\` reads it too`,
    );
  if (error.path !== undefined)
    return new Error(
      `the Temporal profile names ${error.path}, which cannot be read (${error.code ?? 'unknown error'}); correct its path ` +
        `in ${file} or in TEMPORAL_TLS_*`,
    );
  if (/^Profile '.*' not found/.test(error.message))
    return new Error(
      `${file} has no profile "${env['TEMPORAL_PROFILE'] ?? 'default'}", which TEMPORAL_PROFILE names; \`temporal config list\` shows its profiles`,
    );
  return error;
}

function defined(env: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}
