import { showFleet, tickAges } from './show.js';

/** Keeps a line to the director and says how good it is. What is shown of the fleet is in show.js. */

/** The director speaks at least every 4 s; this long without a word, the line is dead whatever the browser thinks. */
const SILENT_MS = 12_000;
const RETRY_MS = 3_000;

const $ = (id) => document.getElementById(id);
const now = () => performance.now();

const line = { source: null, retry: null, openedAt: now(), heardAt: null, lostAt: null };
/** The last message, and when it came. */
let last = null;

function open() {
  clearTimeout(line.retry);
  line.source?.close();
  line.openedAt = now();
  line.source = new EventSource('/fleet/events');
  line.source.onmessage = (event) => {
    last = { ...JSON.parse(event.data), at: now() };
    line.heardAt = now();
    line.lostAt = null;
    if (last.fleet) showFleet(last.fleet, last.at - last.age, last.withheld);
    showConnection();
  };
  line.source.onerror = () => lost();
}

function lost() {
  line.lostAt ??= now();
  line.source?.close();
  clearTimeout(line.retry);
  // by hand: a browser gives a stream up for good that was refused once
  line.retry = setTimeout(open, RETRY_MS);
  showConnection();
}

const seconds = (ms) => `${Math.max(0, Math.round(ms / 1000))} s`;

function verdict() {
  const stale = last?.fleet
    ? `What you see is ${seconds(now() - last.at + last.age)} old.`
    : 'There is nothing to show yet.';
  if (line.lostAt !== null) {
    return {
      state: 'lost',
      words: 'connection lost',
      banner: `No connection to the director for ${seconds(now() - (line.heardAt ?? line.lostAt))}; trying again every 3 s. ${stale}`,
    };
  }
  if (last === null) return { state: 'opening', words: 'connecting …', banner: null };
  if (!last.database.ok) {
    return {
      state: 'away',
      words: 'database away',
      banner: `The director cannot read the database (${last.database.reason}) for ${seconds(last.database.away + now() - last.at)}. ${stale}`,
    };
  }
  return { state: 'live', words: 'live', banner: null };
}

let announced = '';

function showConnection() {
  const { state, words, banner } = verdict();
  $('connection').dataset.state = state;
  if ($('connection-words').textContent !== words) $('connection-words').textContent = words;
  document.body.classList.toggle('stale', banner !== null);
  // an alert is read out when it appears, not for every second that it lasts
  if (banner === null) {
    $('banner').hidden = true;
  } else {
    if (announced !== state) $('banner').setAttribute('role', 'alert');
    else $('banner').removeAttribute('role');
    $('banner').textContent = banner;
    $('banner').hidden = false;
  }
  announced = state;
}

setInterval(() => {
  const silent = now() - Math.max(line.heardAt ?? 0, line.openedAt);
  if (line.lostAt === null && silent > SILENT_MS) lost();
  tickAges();
  showConnection();
}, 1_000);

// a phone that slept holds a line that died meanwhile
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible' && now() - (line.heardAt ?? 0) > SILENT_MS) open();
});

open();
