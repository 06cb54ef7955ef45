// A page that shows messages about as Slack does, for people to look at: `docs` and reviews need no workspace for it.
import type { MessageBlock } from '../../../src/integrations/slack/blocks.js';

const emoji: Record<string, string> = {
  arrow_forward: '▶️',
  double_vertical_bar: '⏸️',
  white_check_mark: '✅',
  x: '❌',
  no_entry_sign: '🚫',
  warning: '⚠️',
  bar_chart: '📊',
  floppy_disk: '💾',
  information_source: 'ℹ️',
};

export interface ShownMessage {
  blocks: MessageBlock[];
  thread: boolean;
  /** `data:` address of the picture that an image block names. */
  picture?: string;
}

export function previewPage(messages: ShownMessage[], scheme: 'light' | 'dark'): string {
  const [page, ink, quiet, line] =
    scheme === 'light'
      ? ['#fff', '#1d1c1d', '#616061', '#ddd']
      : ['#1a1d21', '#d1d2d3', '#ababad', '#35373b'];
  return `<!doctype html><meta charset="utf-8"><style>
    body { font: 15px/1.46 Lato, 'Liberation Sans', sans-serif; background: ${page}; color: ${ink}; width: 640px; margin: 16px; }
    .message { padding: 8px 0 8px 0; } .thread { margin-left: 40px; border-left: 2px solid ${line}; padding-left: 14px; }
    .header { font-size: 18px; font-weight: 900; margin: 4px 0; } .context { font-size: 13px; color: ${quiet}; margin: 4px 0; }
    .fields { display: grid; grid-template-columns: 1fr 1fr; gap: 8px; margin: 6px 0; } .section { margin: 4px 0; }
    code { font: 12px monospace; color: #c01343; border: 1px solid ${line}; border-radius: 3px; padding: 1px 3px; }
    img { max-width: 480px; border-radius: 8px; } a { color: #1264a3; } .name { font-weight: 900; }
  </style>${messages.map(shown).join('')}`;
}

function shown({ blocks, thread, picture }: ShownMessage): string {
  return `<div class="message ${thread ? 'thread' : ''}"><div class="name">Longhaul</div>${blocks.map((block) => html(block, picture)).join('')}</div>`;
}

function html(block: MessageBlock, picture: string | undefined): string {
  switch (block.type) {
    case 'header':
      return `<div class="header">${plain(block.text.text)}</div>`;
    case 'section':
      return 'fields' in block
        ? `<div class="fields">${block.fields.map(({ text }) => `<div>${mrkdwn(text)}</div>`).join('')}</div>`
        : `<div class="section">${mrkdwn(block.text.text)}</div>`;
    case 'context':
      return `<div class="context">${block.elements.map(({ text }) => mrkdwn(text)).join(' ')}</div>`;
    case 'image':
      return `<div class="context">${plain(block.title.text)}</div><img alt="${block.alt_text}" src="${picture ?? ''}">`;
  }
}

const plain = (text: string): string =>
  text.replace(/:([a-z_]+):/g, (whole, name: string) => emoji[name] ?? whole);

/** What is escaped is escaped in HTML alike. */
function mrkdwn(text: string): string {
  return plain(text)
    .replace(/<!date\^\d+\^[^|]*\|([^>]*)>/g, '$1')
    .replace(/<(https?:[^|>]*)\|([^>]*)>/g, '<a href="$1">$2</a>')
    .replace(/`([^`\n]+)`/g, '<code>$1</code>')
    .replace(/\*([^*\n]+)\*/g, '<b>$1</b>')
    .replaceAll('\n', '<br>');
}
