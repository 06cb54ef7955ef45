// How many sessions the example server keeps open, and how many of them a node uses.

/** Sessions that a stack's environment server keeps for each node. */
export const placesForNode = 512;
/** Sessions that a node opens on that server at once. The rest is for other processes. */
export const placesOfNode = 400;
