// The list of all faults that a chaos run may have.
import { engineFaults } from './engine.js';
import { environmentFaults } from './environments.js';
import type { Fault } from './fault.js';
import { machineFaults } from './machine.js';
import { nodeFaults } from './nodes.js';
import { objectStoreFaults } from './object-store.js';
import { processFaults } from './processes.js';
import { steeringFaults } from './steering.js';
import { temporalFaults } from './temporal.js';
import { twoOwnersFaults } from './two-owners.js';

export const allFaults: readonly Fault[] = [
  ...processFaults,
  ...engineFaults,
  ...environmentFaults,
  ...objectStoreFaults,
  ...machineFaults,
  ...temporalFaults,
  ...twoOwnersFaults,
  ...nodeFaults,
  ...steeringFaults,
];
