// How many worlds the built-in environment server keeps open, and how many of them a node asks for.

/** Of the server, for each node of a stack. */
export const placesForNode = 512;
/** Of the one server that a node asks, for all that it plays there: so that the rest is there for what other processes play. */
export const placesOfNode = 400;
