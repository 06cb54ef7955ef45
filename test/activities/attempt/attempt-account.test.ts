// What an attempt would lose if it died now.
import { describe, expect, it } from 'vitest';
import { AttemptAccount } from '../../../src/activities/attempt/attempt-account.js';

describe('the episodes that an attempt would lose', () => {
  it('are those in flight that no later attempt can continue', () => {
    const account = new AttemptAccount();
    const [first, second, third] = [
      account.begin('episode'),
      account.begin('episode'),
      account.begin('episode'),
    ];
    account.begin('update');
    expect(account.lost.episodes).toBe(3);
    // A journal that holds no turn yet: the episode begins again.
    first.kept();
    expect(account.lost.episodes).toBe(3);
    first.sampled(10);
    expect(account.lost).toMatchObject({ episodes: 3, tokens: 10 });
    first.kept();
    expect(account.lost).toMatchObject({ episodes: 2, tokens: 0 });
    // The turn after the kept one is lost, the episode is not.
    first.sampled(7);
    expect(account.lost).toMatchObject({ episodes: 2, tokens: 7 });
    second.end();
    expect(account.lost.episodes).toBe(1);
    third.end();
    expect(account.lost.episodes).toBe(0);
  });

  it('do not include one that continues what an earlier attempt left, even before its next turn', () => {
    const account = new AttemptAccount();
    account.begin('episode', true);
    expect(account.lost.episodes).toBe(0);
  });
});
