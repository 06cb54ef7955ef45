// What a machine must bring itself. A missing piece is named together with the package that has it.
import { findOnPath, SetupError } from './command.mjs';

const packages = {
  compiler: { apt: 'g++', dnf: 'gcc-c++', apk: 'g++', brew: null },
  cmake: { apt: 'cmake', dnf: 'cmake', apk: 'cmake', brew: 'cmake' },
  make: { apt: 'make', dnf: 'make', apk: 'make', brew: null },
  go: { apt: 'golang', dnf: 'golang', apk: 'go', brew: 'go' },
};

const managers = [
  ['apt', 'apt-get', 'sudo apt-get install'],
  ['dnf', 'dnf', 'sudo dnf install'],
  ['apk', 'apk', 'sudo apk add'],
  ['brew', 'brew', 'brew install'],
];

/** How to install a prerequisite with the package manager of this machine. */
export function installHint(name) {
  for (const [key, command, verb] of managers) {
    if (findOnPath(command) === null) continue;
    const chosen = packages[name][key];
    return chosen === null ? 'Install it: xcode-select --install' : `Install it: ${verb} ${chosen}`;
  }
  return `Install the package ${packages[name].apt} (its name on Debian) or its equal here.`;
}

export function checkNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > 20 || (major === 20 && minor >= 19)) return;
  throw new SetupError(
    `Node ${process.versions.node} is too old: Longhaul needs 20.19 or newer. See https://nodejs.org.`,
  );
}

/** Path of the C++ compiler; CXX is honoured. */
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

export function requireCmake() {
  const path = findOnPath('cmake');
  if (path === null)
    throw new SetupError(`cmake not found; the engine is built with it. ${installHint('cmake')}`);
  return path;
}

/** CMake generator that this machine can drive. */
export function requireGenerator() {
  if (findOnPath('ninja') !== null) return 'Ninja';
  if (findOnPath('make') !== null) return 'Unix Makefiles';
  throw new SetupError(`Neither ninja nor make found; the engine's build needs one. ${installHint('make')}`);
}

/** @param {string} purpose what is to be built, for the message */
export function requireGo(purpose) {
  const path = findOnPath('go');
  if (path === null)
    throw new SetupError(
      `go not found; ${purpose} ${installHint('go')} (1.21 or newer fetches the version it needs.)`,
    );
  return path;
}
