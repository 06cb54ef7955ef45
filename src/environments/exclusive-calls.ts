// The calls of one episode: one at a time, and none after a failure or the end.

export class ExclusiveCalls {
  #inFlight = false;
  #isBroken = false;
  #isOver = false;

  get inFlight(): boolean {
    return this.#inFlight;
  }

  /** Throws if another call is in flight, or if a call has failed or the episode has ended before. */
  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#isOver || this.#isBroken) throw new Error('the episode has ended; it can only be closed');
    if (this.#inFlight) throw new Error('a call of this episode is still in flight');
    this.#inFlight = true;
    try {
      return await call();
    } catch (error) {
      this.#isBroken = true;
      throw error;
    } finally {
      this.#inFlight = false;
    }
  }

  /** False if the episode had ended before. */
  end(): boolean {
    const isFirst = !this.#isOver;
    this.#isOver = true;
    return isFirst;
  }
}
