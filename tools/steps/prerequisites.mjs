// The programs that a machine must provide itself. A message names each missing or too old program together with the package that contains
// it.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findOnPath, outputOf, SetupError } from './command.mjs';

const packages = {
  compiler: { apt: 'g++', dnf: 'gcc-c++ libstdc++-static', apk: 'g++' },
  cmake: { apt: 'cmake', dnf: 'cmake', apk: 'cmake' },
  make: { apt: 'make', dnf: 'make', apk: 'make' },
  python: { apt: 'python3', dnf: 'python3', apk: 'python3' },
  npm: { apt: 'npm', dnf: 'npm', apk: 'npm' },
};

const managers = [
  ['apt', 'apt-get', 'sudo apt-get install'],
  ['dnf', 'dnf', 'sudo dnf install'],
  ['apk', 'apk', 'sudo apk add'],
];

/** Since this version, Go downloads the newer Go that a module asks for. */
const oldestGo = '1.21';

/** Uses the parts of C++20 and its library that the engine needs. */
const compilerProbe = `
#include <bit>
#include <charconv>
#include <span>
constinit static double value = 0;
int main(int, char** words) {
  const std::span<char*> all(words, 1);
  std::from_chars(all[0], all[0] + 1, value);
  return std::popcount(static_cast<unsigned>(value));
}
`;
const compilerFlags = ['-std=c++20', '-pthread', '-static-libstdc++', '-static-libgcc'];

/** Says how to install a prerequisite with this machine's package manager. */
function installHint(name) {
  for (const [key, command, verb] of managers) {
    if (findOnPath(command) !== null) return `Install it: ${verb} ${packages[name][key]}`;
  }
  return `Install the package ${packages[name].apt} (its name on Debian) or the equivalent package of this system.`;
}

/** Whether `version` is at least `wanted`. Only as many numbers as `wanted` has are compared. */
function isAtLeast(version, wanted) {
  const [have, need] = [version, wanted].map((text) => text.split('.').map(Number));
  const differing = need.findIndex((number, index) => (have[index] ?? 0) !== number);
  return differing === -1 || (have[differing] ?? 0) > need[differing];
}

export function checkPlatform() {
  if (process.platform === 'linux' && process.arch === 'x64') return;
  throw new SetupError(
    `This is ${process.platform} on ${process.arch}: the engine is written for Linux on x86-64.`,
  );
}

export function checkNode() {
  if (isAtLeast(process.versions.node, '20.19')) return;
  throw new SetupError(
    `Node ${process.versions.node} is too old: Longhaul needs 20.19 or newer. See https://nodejs.org.`,
  );
}

export function requireNpm() {
  const path = findOnPath('npm');
  if (path === null)
    throw new SetupError(
      `npm not found. It comes with Node from https://nodejs.org; some distributions package it separately. ${installHint('npm')}`,
    );
  return path;
}

/** Path of the C++ compiler. The variable CXX comes first. */
export function requireCompiler() {
  for (const name of [process.env.CXX, 'c++', 'g++', 'clang++']) {
    if (!name) continue;
    const path = name.includes('/') ? name : findOnPath(name);
    if (path !== null) return path;
  }
  throw new SetupError(
    `No C++ compiler (c++, g++ or clang++) found; the engine is built from source. ${installHint('compiler')}`,
  );
}

/** Compiles and links a small program with the engine's flags. A version number would not show whether the library is installed. */
export function checkCompiler(compiler) {
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-compiler-'));
  try {
    const source = join(folder, 'probe.cc');
    writeFileSync(source, compilerProbe);
    const { status, error, stderr } = spawnSync(
      compiler,
      [...compilerFlags, source, '-o', join(folder, 'probe')],
      {
        encoding: 'utf8',
        timeout: 60_000,
      },
    );
    if (status === 0) return;
    const complaint = /^.*\b(?:error|cannot find)\b.*$/im.exec(stderr ?? '')?.[0] ?? error?.message ?? '';
    throw new SetupError(
      [
        `${compiler} (${firstLine(outputOf(compiler, ['--version']))}) cannot build C++20 with a static C++ library:`,
        ...(complaint === '' ? [] : [`    ${complaint.trim()}`]),
        `  The engine needs g++ ≥ 11 or clang ≥ 14; to use another compiler, set CXX=/path/to/compiler. ${installHint('compiler')}`,
      ].join('\n'),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export function requireCmake() {
  const path = findOnPath('cmake');
  if (path === null)
    throw new SetupError(`cmake not found; the engine is built with it. ${installHint('cmake')}`);
  const version = /version (\d+(?:\.\d+)*)/.exec(outputOf(path, ['--version']) ?? '')?.[1];
  if (version !== undefined && isAtLeast(version, '3.20')) return path;
  throw new SetupError(
    `cmake ${version ?? `at ${path}, whose version is unknown,`} is too old: the engine is built with 3.20 or newer. ` +
      `See https://cmake.org/download.`,
  );
}

/** A CMake generator whose build program is installed here. */
export function requireGenerator() {
  if (findOnPath('ninja') !== null) return 'Ninja';
  if (findOnPath('make') !== null) return 'Unix Makefiles';
  throw new SetupError(`Neither ninja nor make found; the engine's build needs one. ${installHint('make')}`);
}

/** Finds the programs that node-gyp needs. @param {string} purpose what is to be built, for the message */
export function requireNodeGyp(purpose) {
  const missing = [
    ['make', 'make', findOnPath('make') !== null],
    ['Python ≥ 3.6', 'python', pythonIsThere()],
  ].filter(([, , present]) => !present);
  if (missing.length > 0)
    throw new SetupError(
      missing.map(([title, name]) => `${title} not found; ${purpose} ${installHint(name)}`).join('\n'),
    );
}

function pythonIsThere() {
  return [process.env.PYTHON, 'python3', 'python'].some((name) => {
    const version = name ? /Python (\d+\.\d+)/.exec(outputOf(name, ['--version']) ?? '')?.[1] : undefined;
    return version !== undefined && isAtLeast(version, '3.6');
  });
}

/**
 * The Go command, and an environment in which it downloads a newer Go if the tool's module asks for one.
 * @param {{name: string, module: string, purpose: string, home: string}} tool `module` is the folder of its go.mod
 */
export function requireGo(tool) {
  const wanted = /^go (\S+)/m.exec(readFileSync(join(tool.module, 'go.mod'), 'utf8'))?.[1] ?? oldestGo;
  const path = findOnPath('go');
  if (path === null) throw new SetupError(`go not found; ${tool.purpose}\n${goHint(tool, wanted)}`);
  // Run outside the module's folder: inside it, Go would download the newer version only to print its own.
  const own = outputOf(path, ['env', 'GOVERSION'], {
    cwd: tmpdir(),
    env: { ...process.env, GOTOOLCHAIN: 'local' },
  });
  const version = /go(\d+(?:\.\d+)*)/.exec(own ?? '')?.[1];
  if (version === undefined || !(isAtLeast(version, wanted) || isAtLeast(version, oldestGo)))
    throw new SetupError(
      `Go ${version ?? `at ${path}, whose version is unknown,`} is too old; ${tool.purpose}\n${goHint(tool, wanted)}`,
    );
  const toolchain = firstLine(outputOf(path, ['env', 'GOTOOLCHAIN'], { cwd: tmpdir() }));
  // Distributions and containers often set `local`, with which Go refuses every module that needs a newer Go.
  return {
    path,
    environment: { ...process.env, GOTOOLCHAIN: ['', 'local'].includes(toolchain) ? 'auto' : toolchain },
  };
}

function goHint({ name, home }, wanted) {
  const ways = [
    `  - Go ${oldestGo} or newer, which fetches ${wanted} by itself: https://go.dev/dl`,
    ...(findOnPath('apt-get') === null ? [] : aptGo()),
    `  - or, in place of Go, a \`${name}\` command on the PATH: ${home}`,
  ];
  return ['One of these fixes it:', ...ways].join('\n');
}

/** Debian 12 and Ubuntu 22.04 have `golang` 1.19 and 1.18, which are too old. */
function aptGo() {
  const codename = /^VERSION_CODENAME=(\S+)/m.exec(osRelease())?.[1];
  if (codename === 'bookworm')
    return [
      '  - from bookworm-backports (https://backports.debian.org): sudo apt-get install -t bookworm-backports golang-go',
    ];
  if (['bullseye', 'focal', 'jammy'].includes(codename ?? '')) return [];
  return ['  - sudo apt-get install golang-go'];
}

function osRelease() {
  try {
    return readFileSync('/etc/os-release', 'utf8');
  } catch {
    return '';
  }
}

function firstLine(text) {
  return (text ?? '').split('\n')[0].trim();
}
