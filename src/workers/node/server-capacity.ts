// How many worlds the built-in environment server keeps open, and how many of them a node asks for.

/** Sessions that a stack's server has for each node. */
export const placesForNode = 512;
/** Sessions that a node opens at once on that server. The rest is for what other processes play. */
export const placesOfNode = 400;
