import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { answerProblem } from '../../../examples/apps/final-answer.js';

const price = { value: 1240, others: [] };
const hotel = { value: 'Grand Atlas', others: ['Grand Atlas', 'Velvet', 'Lagoon'] };
const prompt = 'Buy 2 seats in row B; what do they cost?';

describe('a final answer', () => {
  it.each([
    '1240',
    '1,240',
    'They cost 1,240.00 in all.',
    '$1,240!',
    'The 2 seats cost 1\u202f240 €.',
    "1'240",
    '１２４０',
  ])('%j names the number', (answer) => expect(answerProblem(answer, price, prompt)).toBeUndefined());

  it.each([
    '',
    '2',
    '124',
    '12400',
    '1.240',
    '1240.5',
    '1,2,4,0',
    '1240 or 1250',
    '1239, 1240, 1241',
    'A1240',
  ])('%j does not', (answer) => expect(answerProblem(answer, price, prompt)).toMatch(/^the answer /));

  it.each(['Grand Atlas', 'the "grand  ATLAS".', 'It is Grand-Atlas, in Lima'])(
    '%j names the hotel',
    (answer) => expect(answerProblem(answer, hotel, prompt)).toBeUndefined(),
  );

  it.each(['Atlas', 'Grand', 'Grand Atlases', 'Grand Atlas or Velvet', 'Velvet, Grand Atlas, Lagoon'])(
    '%j does not name the hotel alone',
    (answer) => expect(answerProblem(answer, hotel, prompt)).toMatch(/^the answer /),
  );

  it('is right in any case and among any other words, and wrong with any second number', () => {
    const word = fc.stringMatching(/^[a-z]{1,8}$/);
    fc.assert(
      fc.property(fc.nat(1e9), fc.nat(1e9), fc.array(word), fc.array(word), (value, other, before, after) => {
        const question = { value, others: [] };
        const answer = [...before, value.toLocaleString('en-US'), ...after].join(' ').toUpperCase();
        expect(answerProblem(answer, question, '')).toBeUndefined();
        if (other !== value) expect(answerProblem(`${answer} ${other}`, question, '')).toBeDefined();
      }),
      { seed: 5 },
    );
  });
});
