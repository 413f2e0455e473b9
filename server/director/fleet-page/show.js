/**
 * Draws a fleet. Elements stay where they are and only what differs is written, so that a selection, a screen reader's place
 * and the scroll position survive four pictures a second.
 */

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat('en');
const count = (n, one, many = `${one}s`) => `${number.format(n)} ${n === 1 ? one : many}`;

/** Moments on this page's clock, as of which ages are told. */
const ages = new Map();

function age(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 === 0 ? '' : ` ${s % 60} s`}`;
  if (s < 172_800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d`;
}

/** Once a second, and at every picture. */
export function tickAges() {
  for (const [element, { since, say }] of ages) {
    if (element.isConnected) text(element, say(age(performance.now() - since)));
    else ages.delete(element);
  }
}

function ticking(element, since, say = (words) => words) {
  ages.set(element, { since, say });
  text(element, say(age(performance.now() - since)));
}

function still(element, words) {
  ages.delete(element);
  text(element, words);
}

function text(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

function attribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Makes the children of `parent` those of `items`, in order; each keeps its element as long as its key is there. */
function keyed(parent, items, keyOf, create, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let element = before.get(key);
    if (!element) {
      element = create(item);
      element.dataset.key = key;
    }
    before.delete(key);
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
    update(element, item);
  }
  for (const element of before.values()) element.remove();
}

/**
 * @param at the moment, on this page's clock, that the ages in `fleet` are true for
 * @param withheld verdicts that the director withholds now
 */
export function showFleet({ cells: rows, ...rest }, at, withheld) {
  const cells = rows.map((cell) => ({ ...cell, withheld: withheld.find(({ cellId }) => cellId === cell.id) ?? null }));
  const fleet = { ...rest, cells };
  const regions = [...Map.groupBy(cells, (cell) => cell.region)];
  text($('summary'), summary(fleet));
  keyed(
    $('regions'),
    regions,
    ([name]) => name,
    makeRegion,
    (element, [name, cells]) => showRegion(element, name, cells, at),
  );
  const works = worksOf(fleet);
  keyed(
    $('works'),
    works,
    ({ key }) => key,
    makeWork,
    (element, work) => showWork(element, work, at),
  );
  $('progress').hidden = works.length === 0;
  keyed(
    $('changes'),
    fleet.changes,
    ({ id }) => id,
    makeChange,
    (element, change) => showChange(element, change, at),
  );
  $('changes-table').hidden = fleet.changes.length === 0;
  $('no-changes').hidden = fleet.changes.length !== 0;
}

const liveOf = (cells) => cells.filter(({ state }) => state === 'live').length;
const sum = (cells, of) => cells.reduce((total, cell) => total + (of(cell) ?? 0), 0);

function room(cells) {
  const live = cells.filter(({ state }) => state === 'live');
  if (live.length === 0) return 'no room';
  return `${number.format(sum(live, ({ load }) => load))} of ${number.format(sum(live, ({ limit }) => limit))} units`;
}

function summary({ cells, drains, migrations }) {
  if (cells.length === 0) return 'No cell is registered.';
  const moving = sum(migrations, ({ hosts }) => hosts);
  return [
    `${liveOf(cells)} of ${count(cells.length, 'cell')} live`,
    room(cells),
    drains.length > 0 && count(drains.length, 'drain'),
    moving > 0 && count(moving, 'open migration'),
  ]
    .filter(Boolean)
    .join(' · ');
}

function makeRegion([name]) {
  const title = make('h2', '', make('span', '', name), make('small'));
  const section = make('section', '', title, make('ul', 'cells'));
  title.id = `region-${name}`;
  section.setAttribute('aria-labelledby', title.id);
  return section;
}

function showRegion(section, _name, cells, at) {
  text(section.querySelector('small'), `${liveOf(cells)} of ${count(cells.length, 'cell')} live · ${room(cells)}`);
  keyed(
    section.querySelector('ul'),
    cells,
    ({ id }) => id,
    makeCell,
    (element, cell) => showCell(element, cell, at),
  );
}

const STATES = {
  live: { tone: 'good', why: null },
  'not ready': { tone: 'warn', why: 'Its process says that it is not ready: it starts, stops or lacks something.' },
  unheard: { tone: 'bad', why: 'No heartbeat for 45 s.' },
  'never heard': { tone: 'warn', why: 'Registered; no process has spoken for it yet.' },
};

const ADMISSIONS = {
  general: null,
  'migration-only': 'takes only migrated hosts',
  'existing-only': 'takes no hosts',
};

function makeCell({ id }) {
  const bar = make('div', 'bar', make('i'));
  bar.setAttribute('role', 'meter');
  bar.setAttribute('aria-label', 'load');
  bar.setAttribute('aria-valuemin', '0');
  const cell = make(
    'li',
    'cell',
    make('div', 'top', make('h3', '', id), make('span', 'badge')),
    make('div', 'tags'),
    make('p', 'why'),
    bar,
    make('div', 'figures', make('span', 'load'), make('span', 'heard')),
  );
  cell.querySelector('h3').title = id;
  return cell;
}

function showCell(element, cell, at) {
  const { tone, why } = STATES[cell.state];
  attribute(element, 'data-tone', tone);
  const badge = element.querySelector('.badge');
  attribute(badge, 'data-tone', tone);
  text(badge, cell.state);
  keyed(
    element.querySelector('.tags'),
    tagsOf(cell),
    ({ words }) => words,
    () => make('span', 'badge'),
    (tag, { words, tone: of }) => {
      attribute(tag, 'data-tone', of);
      text(tag, words);
    },
  );
  const reason = element.querySelector('.why');
  text(reason, whyOf(cell, why) ?? '');
  reason.hidden = reason.textContent === '';
  showBar(element.querySelector('.bar'), cell.load, cell.limit);
  text(
    element.querySelector('.load'),
    cell.load === null
      ? `limit ${number.format(cell.limit)}`
      : `${number.format(cell.load)} of ${number.format(cell.limit)} units`,
  );
  const heard = element.querySelector('.heard');
  if (cell.heard === null) still(heard, 'never heard');
  else ticking(heard, at - cell.heard, (words) => `heard ${words} ago`);
}

/** Why nobody is moved off a silent reserve cell. */
function withheldWords({ reason, feedCells, failing, regionFeedCells, regionFailing, forMs }) {
  const why =
    {
      sample: `only ${count(feedCells, 'cell')} to compare it with`,
      fleet: `${failing} of ${count(feedCells, 'cell')} do not answer`,
      region: `${regionFailing} of ${count(regionFeedCells, 'cell')} of its region do not answer`,
    }[reason] ?? reason;
  return `It answers no poll, and its verdict is withheld for ${age(forMs)}: ${why}. Its hosts wait.`;
}

function whyOf(cell, why) {
  if (cell.withheld !== null) return withheldWords(cell.withheld);
  if (cell.state !== 'unheard') return why;
  return cell.capped
    ? `${why} It is capped: its hosts wait until it is fenced.`
    : `${why} Its hosts move when they ask.`;
}

function tagsOf(cell) {
  return [
    ADMISSIONS[cell.admission] && { words: `${cell.admission}: ${ADMISSIONS[cell.admission]}`, tone: 'accent' },
    cell.mode === 'reserve' && { words: 'reserve', tone: 'accent' },
    cell.withheld !== null && { words: 'verdict withheld', tone: 'bad' },
    cell.mode === 'reserve' && cell.effective_mode === 'db' && { words: 'tripped: asks the database', tone: 'warn' },
    cell.rolling !== null && { words: 'roll', tone: 'accent' },
    cell.draining && { words: 'draining', tone: 'accent' },
    cell.capped && { words: 'capped', tone: 'plain' },
  ].filter(Boolean);
}

function showBar(bar, value, max) {
  const share = value === null ? 0 : Math.min(1, value / Math.max(1, max));
  bar.firstElementChild.style.width = `${(share * 100).toFixed(1)}%`;
  attribute(bar, 'data-level', share >= 1 ? 'full' : share >= 0.85 ? 'high' : 'low');
  attribute(bar, 'aria-valuemax', String(max));
  attribute(bar, 'aria-valuenow', String(Math.min(value ?? 0, max)));
}

/** Drains, migrations and fences, as things under way with a title, a bar where one makes sense, and a few words. */
function worksOf({ drains, migrations, fences }) {
  return [
    ...drains.map((drain) => ({
      key: `drain ${drain.cell}`,
      title: `${drain.cell} drains`,
      bar: { value: drain.hosts - drain.here, max: drain.hosts },
      since: drain.age,
      words: drainWords(drain),
    })),
    ...migrations.map((move) => ({
      key: `move ${move.from} ${move.to}`,
      title: `${move.from} → ${move.to}: ${count(move.hosts, 'host')} on the way`,
      bar: { value: move.registered, max: move.hosts },
      since: move.oldest,
      words: `${number.format(move.registered)} seated on ${move.to}${move.pinned > 0 ? `, ${number.format(move.pinned)} pinned there` : ''}`,
    })),
    ...fences.map((fence) => ({
      key: `fence ${fence.cell}`,
      title: fence.fenced ? `${fence.cell} is fenced: its hosts may leave` : `${fence.cell}: fence ${fence.state}`,
      bar: null,
      since: null,
      words: fence.expires === null ? 'not committed yet' : `ends in ${age(fence.expires)} unless committed again`,
    })),
  ];
}

function drainWords({ current, hosts, here, retiring, told, grace, pace }) {
  if (!current) return 'The process that was told to drain is gone; the one that runs ignores the order.';
  return [
    `${number.format(here)} of ${count(hosts, 'host')} left`,
    retiring > 0 && `${number.format(retiring)} in their grace`,
    told !== null && `${number.format(told)} told`,
    `over ${age(pace)}, grace ${age(grace)}`,
  ]
    .filter(Boolean)
    .join(', ');
}

function makeWork() {
  const bar = make('div', 'bar', make('i'));
  bar.setAttribute('role', 'progressbar');
  bar.setAttribute('aria-valuemin', '0');
  return make(
    'li',
    'work',
    make('p', 'title'),
    bar,
    make('div', 'figures', make('span', 'words'), make('span', 'since')),
  );
}

function showWork(element, { title, bar, since, words }, at) {
  text(element.querySelector('.title'), title);
  const meter = element.querySelector('.bar');
  meter.hidden = bar === null;
  if (bar !== null) {
    meter.setAttribute('aria-label', title);
    showBar(meter, bar.value, bar.max);
    attribute(meter, 'data-level', 'low');
  }
  text(element.querySelector('.words'), words);
  const clock = element.querySelector('.since');
  if (since === null) still(clock, '');
  else ticking(clock, at - since, (told) => `for ${told}`);
}

function makeChange({ words, from, to, host, epoch }) {
  const cells = from && to && from !== to ? `${from} → ${to}` : (to ?? from ?? '');
  return make(
    'tr',
    '',
    make('td'),
    make('td', '', words),
    make('td', '', cells),
    make('td', 'host', host ?? ''),
    make('td', '', epoch === null ? '' : String(epoch)),
  );
}

function showChange(row, change, at) {
  ticking(row.firstElementChild, at - change.age);
}
