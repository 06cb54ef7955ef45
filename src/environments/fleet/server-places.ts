// Finds out which servers an instance has. The gate answers 404 both for an app that is still starting and for an app that the instance lacks.
//
// An episode without the tools of its app would be graded 0, so a place that has ever listed tools in this process is always waited for.
import { awakeNow } from '../../base/awake-clock.js';

/** Where an instance may have its servers. A tool belongs to the first that lists it. */
export const places = ['mcp', 'api/v1/mcp'] as const;
export type Place = (typeof places)[number];

/**
 * By place, what earlier instances of the same environment and version had there: `present`, or the number of openings that waited in vain. A
 * place without an entry is unknown.
 */
export type KnownPlaces = Map<Place, 'present' | number>;

/** A place's answer to a request for its tools. `none`: 404. */
export type PlaceAnswer = 'tools' | 'empty list' | 'none' | 'failure';

/** After so many openings that waited in vain, a place counts as absent. */
const openingsToBeAbsent = 3;
/** A place that earlier openings found absent counts as absent after this many 404s in a row, over 8 s. */
const triesToBeAbsent = 6;

/** Follows one place while an instance comes up. */
export class ServerPlace {
  #tries = 0;
  #since = 0;
  #isSettled = false;
  /** Only earlier openings count, so that an opening that ends its wait does not shorten the wait of another one. */
  readonly #wasAbsent: boolean;

  constructor(
    private readonly place: Place,
    private readonly known: KnownPlaces,
    /** An unknown place counts as absent after it has answered 404 for so long. */
    private readonly unknownMs: number,
  ) {
    const openings = known.get(place);
    this.#wasAbsent = typeof openings === 'number' && openings >= openingsToBeAbsent;
  }

  add(answer: PlaceAnswer): void {
    if (answer === 'tools') this.known.set(this.place, 'present');
    if (answer !== 'none') this.#tries = 0;
    else if (this.#tries++ === 0) this.#since = awakeNow();
    const isPresent = this.known.get(this.place) === 'present';
    this.#isSettled =
      answer === 'tools' ||
      (!isPresent && (answer === 'empty list' || (answer === 'none' && this.#isAbsent())));
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Call when the opening succeeded: if the place had nothing, the opening did not need it. */
  remember(): void {
    const openings = this.known.get(this.place) ?? 0;
    if (openings !== 'present' && this.#tries > 0 && this.#isAbsent())
      this.known.set(this.place, openings + 1);
  }

  #isAbsent(): boolean {
    return this.#wasAbsent ? this.#tries >= triesToBeAbsent : awakeNow() - this.#since >= this.unknownMs;
  }
}
