// The report's one script, copied into the page unchanged. It filters the index of transcripts, loads the chunks of transcripts that are
// opened, and shows them as text. It is the same for every run, because the content policy names it by its hash. All data from outside
// becomes text nodes.
(() => {
  'use strict';
  const box = document.getElementById('transcript-browser');
  const index = JSON.parse(document.getElementById('transcript-index').textContent);
  const VERDICTS = [
    ['fail', '✗ fail'],
    ['unknown', '? unknown'],
    ['pass', '✓ pass'],
  ];
  const ENDINGS = [
    'ended by the model',
    'ended by the limit of turns',
    'ended by the limit of tokens',
    'broken off: the outcome is unknown',
    'ended by the environment',
  ];
  const MARKS = [
    ['toolError', 1, 'tool error'],
    ['repeated', 2, 'repeated call'],
    ['premature', 4, 'premature done'],
    ['cutOff', 8, 'cut off'],
  ];
  const NAMES = ['in', 'step', 'env', 'outcome', 'with', 'task'];
  const SHOWN_AT_ONCE = 40,
    CHUNKS_KEPT = 8,
    LOAD_LIMIT_MS = 30000;

  const form = box.querySelector('form');
  const found = box.querySelector('.found');
  const list = box.querySelector('.found-list');
  const more = box.querySelector('.more');
  const panel = box.querySelector('.opened');
  let rows = [],
    shown = 0,
    open = null;

  const make = (tag, style, ...inside) => {
    const element = document.createElement(tag);
    if (style) element.className = style;
    element.append(...inside);
    return element;
  };

  function placeText([name, step]) {
    return name === 'train' ? 'training step ' + step : name + ' evaluation after step ' + step;
  }
  function idOf(row) {
    const [name, step] = index.places[row[0]];
    return [name, step, row[1], row[2]].join('.');
  }
  const count = (value) => value.toLocaleString('en');

  // ── search
  function settings() {
    const data = new FormData(form);
    return Object.fromEntries(NAMES.map((name) => [name, String(data.get(name) ?? '').trim()]));
  }
  function setForm(values) {
    for (const name of NAMES) {
      const control = form.elements.namedItem(name);
      control.value = values.get(name) ?? '';
      if (control.selectedIndex === -1) control.selectedIndex = 0;
    }
  }
  function addressOf(values, id) {
    const params = new URLSearchParams();
    for (const name of NAMES) if (values[name]) params.set(name, values[name]);
    if (id) params.set('t', id);
    return '#' + params.toString();
  }
  function search() {
    const { in: where, step, env, outcome, with: mark, task } = settings();
    const environment = index.environments.indexOf(env);
    const verdict = VERDICTS.findIndex(([name]) => name === outcome);
    const bit = MARKS.find(([name]) => name === mark)?.[1] ?? 0;
    const words = task.toLowerCase();
    const tasks = index.tasks.map(
      ([key, of, request]) =>
        (environment < 0 || of === environment) &&
        (words === '' || key.toLowerCase().includes(words) || request.toLowerCase().includes(words)),
    );
    const places = index.places.map(
      ([name, at, newest]) =>
        (step === '' || at === Number(step)) &&
        (where === '' || (where === 'newest' ? newest === 1 : (where === 'training') === (name === 'train'))),
    );
    rows = index.rows.filter(
      (row) =>
        places[row[0]] && tasks[row[3]] && (verdict < 0 || row[4] === verdict) && (row[7] & bit) === bit,
    );
    // Failures first: they teach more.
    rows.sort((a, b) => a[4] - b[4]);
    shown = 0;
    list.replaceChildren();
    found.textContent =
      count(rows.length) +
      (rows.length === 1 ? ' transcript' : ' transcripts') +
      (rows.length > 1 && verdict < 0 ? ', failures first' : '');
    showMore();
  }
  function showMore() {
    const values = settings();
    for (const row of rows.slice(shown, shown + SHOWN_AT_ONCE)) list.append(entry(row, values));
    shown = Math.min(rows.length, shown + SHOWN_AT_ONCE);
    more.hidden = shown >= rows.length;
    more.textContent = 'show more: ' + count(rows.length - shown) + ' are left';
  }
  function badge(row) {
    const [name, word] = VERDICTS[row[4]];
    return make('span', 'status ' + name, word);
  }
  function factsOf(row) {
    const [key, environment] = index.tasks[row[3]];
    const turns = row[6] + (row[6] === 1 ? ' turn' : ' turns');
    const marks = MARKS.filter(([, bit]) => row[7] & bit).map(([, , word]) => word);
    return [
      placeText(index.places[row[0]]),
      index.environments[environment],
      key,
      'sample ' + row[2],
      turns,
      ...marks,
    ].join(' · ');
  }
  function entry(row, values) {
    const link = make(
      'a',
      'entry',
      badge(row),
      ' ',
      make('span', 'request', index.tasks[row[3]][2]),
      make('span', 'facts-line quiet', factsOf(row)),
    );
    link.href = addressOf(values, idOf(row));
    link.dataset.id = idOf(row);
    return make('li', '', link);
  }

  // ── the opened transcript
  const loaded = new Map(),
    waiting = new Map();
  const addresses = new Set(index.chunks.filter((name) => /^[0-9a-f]{16}$/.test(name)).map(addressOfChunk));
  function addressOfChunk(name) {
    return encodeURIComponent(index.folder) + '/' + name + '.js';
  }
  function checkedAddress(address) {
    if (!addresses.has(address)) throw new TypeError('no file of transcripts: ' + address);
    return address;
  }
  const policy = window.trustedTypes?.createPolicy('longhaul', { createScriptURL: checkedAddress }) ?? {
    createScriptURL: checkedAddress,
  };
  Object.defineProperty(window, 'longhaulChunk', {
    value: (name, content) => waiting.get(name)?.(String(content)),
  });

  function load(name) {
    const known = loaded.get(name);
    if (known) return known;
    const content = new Promise((resolve, reject) => {
      const inside = document.getElementById('chunk-' + name);
      if (inside) return resolve(inside.textContent);
      const script = document.createElement('script');
      const fail = () => reject(new Error('missing'));
      const timer = setTimeout(fail, LOAD_LIMIT_MS);
      const end = () => {
        clearTimeout(timer);
        waiting.delete(name);
        script.remove();
        fail();
      };
      waiting.set(name, resolve);
      script.onload = end;
      script.onerror = end;
      script.charset = 'utf-8';
      script.src = policy.createScriptURL(addressOfChunk(name));
      document.head.append(script);
    }).then((text) => JSON.parse(text));
    loaded.set(name, content);
    content.catch(() => loaded.delete(name));
    if (loaded.size > CHUNKS_KEPT) loaded.delete(loaded.keys().next().value);
    return content;
  }

  function segment(one) {
    if (one.kind === 'text') return make('pre', '', one.text);
    if (one.kind === 'done') return make('span', 'done', 'done');
    if (one.kind === 'malformed')
      return make('div', '', make('pre', 'malformed', one.text), make('span', 'quiet', 'no valid tool call'));
    const call = make('code', 'call', make('b', '', one.name), '(');
    one.arguments.forEach(([name, value], at) =>
      call.append(at > 0 ? ', ' : '', make('span', 'name', name), '=' + value),
    );
    call.append(')');
    return call;
  }
  const SPEAKERS = {
    system: 'system prompt',
    task: 'task',
    model: 'model',
    result: 'tool result',
    error: '✗ tool error',
  };
  const STYLES = { system: 'system', task: 'user', model: 'model', result: 'result', error: 'result failed' };
  function part([who, what], texts) {
    if (who === 'system') {
      const details = make(
        'details',
        'part system',
        make('summary', 'who', SPEAKERS.system),
        make('pre', '', texts[what]),
      );
      return details;
    }
    const body = who === 'model' ? what.map(segment) : [make('pre', '', texts[what])];
    return make('div', 'part ' + STYLES[who], make('span', 'who', SPEAKERS[who]), make('div', '', ...body));
  }

  function step(by, word) {
    const to = rows[rows.indexOf(open) + by];
    const usable = rows.includes(open) && to;
    const button = make(usable ? 'a' : 'span', usable ? 'step' : 'step off', word);
    if (usable) button.href = addressOf(settings(), idOf(to));
    return button;
  }
  async function show(row) {
    open = row;
    for (const old of list.querySelectorAll('[aria-current]')) old.removeAttribute('aria-current');
    const at = rows.indexOf(row);
    while (at >= shown && shown < rows.length) showMore();
    const mine = list.children[at]?.firstChild;
    mine?.setAttribute('aria-current', 'true');
    if (mine) list.scrollTop = Math.max(0, mine.offsetTop - list.clientHeight / 3);
    const [, , request] = index.tasks[row[3]];
    const place = at < 0 ? '' : count(at + 1) + ' of ' + count(rows.length);
    const link = make('a', 'whole', 'link to this transcript');
    link.href = addressOf({}, idOf(row));
    const head = make(
      'div',
      'opened-head',
      make('p', 'walk', step(-1, '← previous'), make('span', 'quiet', place), step(1, 'next →'), link),
      make('p', 'opened-title', badge(row), ' ', make('span', 'request', request)),
      make('p', 'quiet', factsOf(row) + ' · ' + ENDINGS[row[5]]),
    );
    const body = make('div', 'talk', make('p', 'quiet', 'Loading …'));
    panel.replaceChildren(head, body);
    panel.hidden = false;
    try {
      const chunk = await load(index.chunks[row[8]]);
      if (open !== row) return;
      const { reason, talk } = chunk.transcripts[row[9]];
      body.replaceChildren(
        ...talk.map((one) => part(one, chunk.texts)),
        make('p', 'quiet verdict', 'Outcome: ' + reason),
      );
    } catch {
      if (open !== row) return;
      const file = index.folder + '/' + index.chunks[row[8]] + '.js';
      body.replaceChildren(
        make(
          'p',
          'missing',
          'This transcript is in ' +
            file +
            ', which lies beside this page and could not be loaded. ' +
            'Keep page and folder together, or write the report again with longhaul report.',
        ),
      );
    }
    panel.scrollIntoView({ block: 'nearest' });
  }
  function find(id) {
    return index.rows.find((row) => idOf(row) === id);
  }

  // ── the page's address
  function route() {
    const params = new URLSearchParams(location.hash.slice(1));
    if (![...params.keys()].some((name) => name === 't' || NAMES.includes(name))) return;
    const id = params.get('t');
    const row = id === null ? undefined : find(id);
    if (id === null || NAMES.some((name) => params.has(name))) setForm(params);
    search();
    if (row && !rows.includes(row)) {
      setForm(new Map());
      search();
    }
    if (row) void show(row);
    else closePanel();
    if (id !== null && !row) found.textContent = 'There is no transcript ' + id + ' in this report.';
    box.scrollIntoView({ block: row ? 'nearest' : 'start' });
  }
  function closePanel() {
    open = null;
    panel.hidden = true;
    panel.replaceChildren();
  }
  function changed() {
    search();
    closePanel();
    // Some pages, such as `about:srcdoc`, cannot change their address: they still show the results.
    try {
      history.replaceState(null, '', addressOf(settings(), null));
    } catch {}
  }

  const option = (value, text) => {
    const one = make('option', '', text);
    one.value = value;
    return one;
  };
  const env = form.elements.namedItem('env');
  for (const name of index.environments) env.append(option(name, name));
  const steps = [...new Set(index.places.map(([, at]) => at))];
  const stepField = form.elements.namedItem('step');
  stepField.min = String(Math.min(...steps));
  stepField.max = String(Math.max(...steps));
  if (!index.places.some(([, , newest]) => newest === 1)) form.elements.namedItem('in').value = '';
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', changed);
  form.addEventListener('reset', () => setTimeout(changed));
  more.addEventListener('click', showMore);
  window.addEventListener('hashchange', route);
  box.hidden = false;
  search();
  route();
})();
