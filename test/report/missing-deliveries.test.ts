import { expect, test } from 'vitest';
import { missingDeliveriesTable } from '../../src/report/missing-deliveries.js';

test('a missing delivery is shown with its reason, as text and not as markup', () => {
  const trouble = {
    what: 'messages behind step 12',
    reason: '<script>alert(1)</script> put a token into SLACK_BOT_TOKEN',
    since: '2026-11-23T02:54:40.928Z',
  };
  const html = missingDeliveriesTable([{ sink: 'slack', trouble }]) ?? '';
  for (const part of ['slack', 'messages behind step 12', '2026-11-23 02:54 UTC', 'into SLACK_BOT_TOKEN'])
    expect(html).toContain(part);
  expect(html).not.toContain('<script>');
  expect(missingDeliveriesTable([])).toBeNull();
});
