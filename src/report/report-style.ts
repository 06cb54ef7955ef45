// The report's style sheet, for light pages, dark pages and paper.

/**
 * Draws a shadow at each edge beyond which there is more content to scroll to. Page-coloured covers scroll with the content; the shadows
 * stay and show when a cover has moved away.
 */
const scrollShadows = [
  'linear-gradient(to right, var(--page) 50%, transparent) left / 36px 100% no-repeat local',
  'linear-gradient(to left, var(--page) 50%, transparent) right / 36px 100% no-repeat local',
  'linear-gradient(to right, var(--shadow), transparent) left / 16px 100% no-repeat scroll',
  'linear-gradient(to left, var(--shadow), transparent) right / 16px 100% no-repeat scroll',
].join(', ');

export const styleSheet = `
@media screen { :root { color-scheme: light dark; } }
:root { --ink: #1c2430; --quiet: #5d6878; --page: #fff; --card: #f4f6f9; --rule: #dfe3ea;
  --raw: #c9d2e0; --smooth: #6b7a90; --interval: #2f6fde; --final: #d9480f; --good: #16794c; --bad: #b42318; --warn: #8a4b06; --shadow: #1c243040; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --quiet: #9aa5b5; --page: #12161d; --card: #1b212b;
  --rule: #2c3442; --raw: #3a4557; --smooth: #94a2b8; --interval: #6ea1ff; --final: #ff8a5c; --good: #4cc38a; --bad: #ff8077; --warn: #f5b454; --shadow: #000c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0; } .title { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 14px; } h2 { font-size: 18px; margin: 40px 0 12px; }
.quiet { color: var(--quiet); font-weight: 400; } .whole { white-space: nowrap; } p.quiet { font-size: 13px; margin: 8px 0; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin-top: 16px; }
.tile { flex: 1 1 120px; background: var(--card); border-radius: 8px; padding: 12px 14px; font-size: 13px; }
.tile .value { font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile.whole-row { flex-basis: 100%; } .pills { display: flex; flex-wrap: wrap; gap: 6px; margin-bottom: 4px; line-height: 1.5; } .pills .status { background: var(--page); }
.tile.wide { flex-basis: 260px; } .tile .big { color: var(--final); }
.chart { width: 100%; height: auto; } .chart text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 20px; font-size: 13px; color: var(--quiet); margin-bottom: 8px; }
.chart .grid { stroke: var(--rule); } .chart .band { fill: var(--card); } .chart .break { stroke: var(--quiet); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .line.raw { stroke: var(--raw); stroke-width: 1; }
.line.smooth { stroke: var(--smooth); } .line.interval { stroke: var(--interval); }
.dot.interval { fill: var(--interval); } .dot.final { fill: var(--final); }
.chart text.value { font-weight: 600; paint-order: stroke; stroke: var(--page); stroke-width: 3px; } .chart text.value.final { fill: var(--final); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th.figure, td.figure { text-align: right; white-space: nowrap; }
th { font-weight: 600; font-size: 13px; color: var(--quiet); } .facts th { width: 190px; white-space: nowrap; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } td code { overflow-wrap: anywhere; } td code.tool { overflow-wrap: break-word; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.status, .position { display: inline-block; border-radius: 999px; padding: 0 9px; font-size: 12px; font-weight: 600; background: var(--card); }
.status.improving, .status.saturating, .status.pass { color: var(--good); }
.status.failing, .status.falling, .status.declining, .status.fail { color: var(--bad); }
.status.flat, .status.unclear, .status.too-few-episodes, .status.not-compared, .status.unknown, .position.stopped, .position.paused { color: var(--warn); }
.position { font-size: 13px; padding: 2px 12px; } .position.completed { color: var(--good); } .position.unfinished { color: var(--interval); }
summary { cursor: pointer; padding: 7px 0; } a { color: var(--interval); text-underline-offset: 2px; }
h3 { font-size: 14px; margin: 20px 0 4px; color: var(--quiet); } .request { font-weight: 500; overflow-wrap: anywhere; }
.facts-line { display: block; font-size: 12.5px; overflow-wrap: anywhere; } .talk { margin: 4px 0 8px; }
.dense table { font-size: 13.5px; } .dense th, .dense td { padding-right: 10px; } .dense th { white-space: normal; vertical-align: bottom; } .wrap { display: inline-block; min-width: 20ch; overflow-wrap: anywhere; }
.filters { display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: end; margin: 12px 0 8px; font-size: 13px; color: var(--quiet); }
.filters label { max-width: 100%; display: flex; flex-direction: column; gap: 2px; } .filters .wide { flex: 1 1 160px; }
.filters select, .filters input, .filters button, .more { font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: 4px 8px; max-width: 100%; height: 32px; }
.filters input[type=number] { width: 76px; } .filters input[type=search] { width: 100%; } .filters button, .more { cursor: pointer; }
.found-list { list-style: none; margin: 0; padding: 0; max-height: 330px; overflow-y: auto; position: relative; border: 1px solid var(--rule); border-radius: 8px; }
.found-list:empty { border: 0; } .entry { display: block; padding: 7px 12px; color: var(--ink); text-decoration: none; border-bottom: 1px solid var(--rule); }
.entry:hover { background: var(--card); } .entry[aria-current] { background: var(--card); box-shadow: inset 4px 0 var(--interval); } .more { margin-top: 8px; font-size: 13px; }
.opened { margin-top: 18px; scroll-margin: 12px; } .opened-head p { margin: 4px 0; } .walk { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; } .walk .whole { margin-left: auto; } .step.off { color: var(--quiet); }
.missing { color: var(--bad); } .verdict { font-weight: 600; }
.part { display: grid; grid-template-columns: 84px 1fr; gap: 12px; padding: 8px 12px; border-left: 3px solid var(--rule); margin: 6px 0; border-radius: 0 6px 6px 0; }
.part.model { background: var(--card); border-left-color: var(--interval); } .part.failed { border-left-color: var(--bad); }
details.part { display: block; } details.part > summary { padding: 0; } .who { color: var(--quiet); font-size: 12px; padding-top: 1px; }
.call { display: block; } .call b { color: var(--interval); } .call .name { color: var(--quiet); }
.done { color: var(--good); font-weight: 600; font-size: 13px; } .malformed { color: var(--bad); }
.trends { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 280px), 1fr)); gap: 20px 24px; margin: 20px 0 16px; }
.chart-narrow { display: none; }
@media (min-width: 940px) { .trends.columns-2 { grid-template-columns: repeat(2, 1fr); } .trends.columns-4 { grid-template-columns: repeat(4, 1fr); } }
figure { margin: 0; } figcaption { font-size: 13px; font-weight: 600; color: var(--quiet); margin-bottom: 2px; }
:focus-visible { outline: 2px solid var(--interval); outline-offset: 2px; }
@media (max-width: 640px) { main { padding: 20px 14px 48px; } .part { grid-template-columns: 1fr; gap: 2px; } .talk { margin-left: 0; }
  .facts th, .facts td { display: block; border: 0; padding: 2px 0; } .facts tr { display: block; border-bottom: 1px solid var(--rule); padding: 6px 0; }
  .chart-wide > .chart { display: none; } .chart-wide .legend { margin-bottom: 0; } .chart-narrow { display: block; }
  th, td { padding-right: 9px; } .scroll { background: ${scrollShadows}; } }
@media screen and (max-width: 640px) { .scroll.stacked table, .scroll.stacked tbody, .scroll.stacked tr { display: block; } .scroll.stacked thead { display: none; } .scroll.stacked tr { padding: 8px 0; border-bottom: 1px solid var(--rule); }
  .scroll.stacked td, .scroll.stacked td.figure { display: flow-root; overflow-wrap: anywhere; border: 0; padding: 1px 0 1px 42%; vertical-align: top; text-align: left; white-space: normal; } .scroll.stacked td:first-child { font-weight: 600; }
  .scroll.stacked td::before { content: attr(data-title); float: left; width: 69%; margin-left: -72.4%; color: var(--quiet); font-size: 12.5px; font-weight: 400; } }
@media print { @page { margin: 14mm; } body { font-size: 11px; } th, p.quiet, code, pre, .filters, .facts-line { font-size: 10px; } .dense th { font-size: 9px; } main { max-width: none; padding: 0; } h2 { margin-top: 24px; } h2, h3, summary { break-after: avoid; }
  .tile, figure, tr, .part:not(.system) { break-inside: avoid; } .scroll { overflow: visible; } a { color: inherit; text-decoration: none; }
  details:not([open]), .filters, .found, .found-list, .more, .walk { display: none; } .dense table { font-size: 9.5px; } .dense th, .dense td { padding: 3px 6px 3px 0; }
  .trends.trends { grid-template-columns: repeat(3, 1fr); } .tile, .part.model { border: 1px solid var(--rule); } }
`;
