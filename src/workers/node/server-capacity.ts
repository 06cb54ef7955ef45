// How many worlds the built-in environment server keeps open, and how many of them a node uses.

/** Sessions of a stack's server for each node. */
export const placesForNode = 512;
/** Sessions that a node opens at once on that server. The rest is for other processes. */
export const placesOfNode = 400;
