'use strict';

const find = (id) => document.getElementById(id);
const isKnown = (value) => typeof value === 'number' && isFinite(value);

// Numbers as people read them; what is not known is a dash.
function digits(value, most) {
  return isKnown(value)
    ? value.toLocaleString('en-US', {maximumFractionDigits: most, minimumFractionDigits: most})
    : '–';
}
function significant(value) {
  if (!isKnown(value)) return '–';
  return value.toLocaleString('en-US', {maximumSignificantDigits: 4});
}
function milliseconds(value) { return isKnown(value) ? significant(value) + ' ms' : '–'; }
function bytes(value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (value >= 1000 && unit + 1 < units.length) { value /= 1000; ++unit; }
  return significant(value) + ' ' + units[unit];
}
function span(seconds) {
  if (!isKnown(seconds)) return '–';
  const whole = Math.round(seconds);
  if (whole < 60) return whole + ' s';
  if (whole < 3600) return Math.floor(whole / 60) + ' min ' + whole % 60 + ' s';
  return Math.floor(whole / 3600) + ' h ' + Math.floor(whole % 3600 / 60) + ' min';
}

// Names come from files and the network: they are only ever set as text.
function say(id, text) {
  const element = find(id);
  if (element.textContent !== text) element.textContent = text;
}
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
function drawn(name, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A table of columns [heading, class, row => text, row => class].
function fillTable(id, columns, rows) {
  const head = element('tr');
  for (const [heading, className] of columns) head.append(element('th', heading, className));
  const lines = rows.map((row) => {
    const line = element('tr');
    for (const [, className, textOf, classOf] of columns) {
      line.append(element('td', textOf(row), (className || '') + ' ' + (classOf ? classOf(row) : '')));
    }
    return line;
  });
  find(id).replaceChildren(head, ...lines);
}

const stateClasses = {
  training: 'good', serving: 'good', finished: 'good', ready: 'good',
  waiting: 'warn', awaited: 'warn', joining: 'warn', late: 'bad', lost: 'bad', ended: 'warn',
};

// What of a worker's iteration takes how many times as long as the others'.
const slowParts = {compute: 'computing', disk: 'reading data', link: 'exchanging'};
function slowness(node, words) {
  if (!node.slow) return '';
  return (slowParts[node.slow.part] || node.slow.part) + words + digits(node.slow.ratio, 1) + ' times';
}

// Of the slowest link that a worker has measured.
const gigabits = (link) => 8e-9 * link.goodput_bytes_per_second;

function showNodes(nodes) {
  const ofWorker = (text) => (node) => node.role === 'worker' ? text(node) : '';
  // First what tells of trouble, where there is any: a phone shows four or five columns at once.
  const where = (column, textOf) => nodes.some(textOf) ? [column] : [];
  fillTable('nodes', [
    ['node', '', (node) => node.role + ' ' + node.rank],
    ['state', '', (node) => node.state, (node) => stateClasses[node.state]],
    ...where(['slow', 'name', (node) => slowness(node, ', '), () => 'warn'],
      (node) => slowness(node, '')),
    ...where(['waits for', 'name', (node) => node.waits_for || ''], (node) => node.waits_for),
    ['iteration', 'number', ofWorker((node) => digits(node.iteration, 0))],
    ['lag', 'number', ofWorker((node) => digits(node.lag, 0))],
    ['iteration ms', 'number', ofWorker((node) => significant(node.iteration_ms))],
    ['exposed ms', 'number', ofWorker((node) => significant(node.exposed_ms))],
    ...where(['link Gb/s', 'number', (node) => node.link ? significant(gigabits(node.link)) : ''],
      (node) => node.link),
    ['silent', 'number', ofWorker((node) => span(node.silent_seconds))],
    ['process', 'number', (node) => node.pid ? String(node.pid) : ''],
    ['host', 'last', (node) => node.host],
  ], nodes);
}

function showBuckets(buckets) {
  const ratio = (bucket) => isKnown(bucket.predicted_ms) && isKnown(bucket.measured_ms) &&
      bucket.predicted_ms > 0 ? bucket.measured_ms / bucket.predicted_ms : NaN;
  fillTable('buckets', [
    ['bucket', 'name', (bucket) => bucket.name],
    ['scheme', '', (bucket) => bucket.scheme],
    ['codec', '', (bucket) => bucket.codec],
    ['size', 'number', (bucket) => bytes(bucket.bytes)],
    ['predicted ms', 'number', (bucket) => significant(bucket.predicted_ms)],
    ['measured ms', 'number', (bucket) => significant(bucket.measured_ms)],
    ['measured / predicted', 'number', (bucket) => digits(ratio(bucket), 2),
      (bucket) => ratio(bucket) > 2 ? 'warn' : ''],
  ], buckets);
}

// Of a drawing's text, at most: a digit of a wide font.
const characterWidth = 7;

// Round values of an axis from `least` to `most`, which cut it into about `parts`: at least two where
// `parts` is 5, or 3 and `least` is 0.
function ticksOf(least, most, parts) {
  const rough = (most - least) / parts || 1;
  // Counting steps would stand still where their number is not exact any more.
  if (Math.max(Math.abs(least), Math.abs(most)) / rough > 1e15) return [least, most];
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let i = Math.ceil(least / step); i * step <= most + step / 1e6; ++i) {
    ticks.push(i * step);
  }
  return ticks;
}

// With as many digits as make a flat curve's ticks differ, and not with those that rounding adds.
function tickText(tick) { return tick.toLocaleString('en-US', {maximumSignificantDigits: 12}); }

function showCurve(id, iterations, values, fromZero) {
  const host = find(id);
  const points = iterations.map((x, i) => [x, values[i]]).filter(([, y]) => isKnown(y));
  if (points.length < 2) {
    host.replaceChildren(element('p', 'No values yet.', 'note'));
    return;
  }
  const width = Math.max(host.clientWidth, 200);
  const height = 180;
  const ys = points.map(([, y]) => y);
  const least = fromZero ? 0 : Math.min(...ys);
  const most = Math.max(...ys) === least ? least + Math.max(1, Math.abs(least) * 1e-9) :
    Math.max(...ys);
  const [begin, end] = [points[0][0], points[points.length - 1][0]];
  const ticks = ticksOf(least, most, 5);
  const longest = Math.max(...ticks.map((tick) => tickText(tick).length));
  const [left, right, top, bottom] = [Math.max(52, 6 + longest * characterWidth), 10, 8, 22];
  const xOf = (x) => left + (x - begin) / (end - begin || 1) * (width - left - right);
  const yOf = (y) => height - bottom - (y - least) / (most - least) * (height - top - bottom);
  const svg = drawn('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img',
    'aria-label': `${points.length} points, the last ${significant(ys[ys.length - 1])}`});
  for (const tick of ticks) {
    svg.append(drawn('line', {class: 'axis', x1: left, x2: width - right, y1: yOf(tick), y2: yOf(tick)}));
    svg.append(drawn('text', {x: left - 6, y: yOf(tick) + 4, 'text-anchor': 'end'}, tickText(tick)));
  }
  svg.append(drawn('text', {x: left, y: height - 6}, digits(begin, 0)));
  svg.append(drawn('text', {x: width - right, y: height - 6, 'text-anchor': 'end'},
    'iteration ' + digits(end, 0)));
  const path = points.map(([x, y], i) => (i ? 'L' : 'M') + xOf(x).toFixed(1) + ' ' + yOf(y).toFixed(1));
  svg.append(drawn('path', {class: 'curve', d: path.join('')}));
  host.replaceChildren(svg);
}

function legend(note, timeline) {
  const entry = (name, text) => {
    const made = element('span', '', 'entry');
    made.append(element('span', '', 'swatch ' + name), text);
    return made;
  };
  note.replaceChildren(entry('compute', 'computing'), entry('wire', 'exchange, ready to fresh'),
    entry('exposed', 'computing stands still'),
    element('div', `Worker ${timeline.worker}, iteration ${digits(timeline.iteration, 0)}, and ` +
      'the start of the next one, which waits for its values.'));
}

// The parts of [0, end) in which computing did not stand still.
function computing(waits, end) {
  const parts = [];
  let from = 0;
  for (const wait of waits) {
    if (wait.begin_ms > from) parts.push([from, wait.begin_ms]);
    from = Math.max(from, wait.end_ms);
  }
  if (from < end) parts.push([from, end]);
  return parts;
}

function showTimeline(timeline) {
  const host = find('timeline');
  if (!timeline) {
    say('timeline_note', 'No worker has told of one yet.');
    host.replaceChildren();
    return;
  }
  legend(find('timeline_note'), timeline);
  const last = Math.max(timeline.duration_ms, ...timeline.buckets.map((bucket) => bucket.fresh_ms),
    ...timeline.waits.map((wait) => wait.end_ms));
  const end = last * 1.02;
  const width = Math.max(host.clientWidth, 200);
  const left = Math.min(150, width * 0.32);
  const row = 18;
  const height = (timeline.buckets.length + 1) * row + 24;
  const ticks = ticksOf(0, end, 3);
  // The last tick may be at the axis' end, and the middle of its text with it.
  const right = Math.max(8, milliseconds(ticks[ticks.length - 1]).length * characterWidth / 2);
  const xOf = (ms) => left + ms / end * (width - left - right);
  const svg = drawn('svg', {viewBox: `0 0 ${width} ${height}`, height, role: 'img',
    'aria-label': 'When each bucket was ready and fresh'});
  for (const tick of ticks) {
    svg.append(drawn('line', {class: 'axis', x1: xOf(tick), x2: xOf(tick), y1: 0, y2: height - 20}));
    svg.append(drawn('text', {x: xOf(tick), y: height - 6, 'text-anchor': 'middle'}, milliseconds(tick)));
  }
  const bar = (className, line, begin, stop, title) => {
    const made = drawn('rect', {class: className, x: xOf(begin), y: line * row + 3, height: row - 6,
      width: Math.max(xOf(stop) - xOf(begin), 1), rx: 1.5});
    made.append(drawn('title', {}, title));
    svg.append(made);
  };
  const label = (line, text) => {
    const most = Math.max(6, Math.floor(left / characterWidth));
    const short = text.length > most ? text.slice(0, most - 1) + '…' : text;
    svg.append(drawn('text', {x: left - 6, y: line * row + 13, 'text-anchor': 'end'}, short));
  };
  label(0, 'computing');
  for (const [begin, stop] of computing(timeline.waits, last)) {
    bar('compute', 0, begin, stop, `${milliseconds(stop - begin)} of computing`);
  }
  for (const wait of timeline.waits) {
    bar('exposed', 0, wait.begin_ms, wait.end_ms,
      `${milliseconds(wait.end_ms - wait.begin_ms)} waiting for ${wait.layer}`);
  }
  timeline.buckets.forEach((bucket, i) => {
    label(i + 1, bucket.name);
    bar('wire', i + 1, bucket.ready_ms, bucket.fresh_ms,
      `${bucket.name}: ${milliseconds(bucket.fresh_ms - bucket.ready_ms)}`);
  });
  host.replaceChildren(svg);
}

function showFigures(job) {
  say('iteration', digits(job.iteration, 0));
  say('iterations', job.iterations ? ' / ' + digits(job.iterations, 0) : '');
  find('progress').hidden = !job.iterations;
  if (job.iterations) find('progress').value = job.iteration / job.iterations;
  say('loss', isKnown(job.loss) ? digits(job.loss, 4) : '–');
  const tests = job.test ? [isKnown(job.test.accuracy) ? 'test accuracy ' + digits(job.test.accuracy, 4) : '',
    isKnown(job.test.loss) ? 'test loss ' + digits(job.test.loss, 4) : ''] : [];
  say('test', tests.filter(Boolean).join('\n'));
  say('images_per_second', significant(job.images_per_second));
  say('iteration_ms', milliseconds(job.iteration_ms));
  say('predicted_iteration_ms',
    isKnown(job.predicted_iteration_ms) ? 'predicted ' + milliseconds(job.predicted_iteration_ms) : '');
  const share = isKnown(job.exposed_ms) && job.iteration_ms > 0 ? job.exposed_ms / job.iteration_ms : NaN;
  say('exposed_share', isKnown(share) ? digits(100 * share, 1) + ' %' : '–');
  say('exposed_ms', isKnown(job.exposed_ms) ? milliseconds(job.exposed_ms) + ' of an iteration' : '');
  const elapsed = isKnown(job.elapsed_seconds) ? 'after ' + span(job.elapsed_seconds) : '';
  say('remaining', isKnown(job.seconds_left) ? 'about ' + span(job.seconds_left) + ' left' : elapsed);
}

function showNews(job) {
  const news = find('news');
  const late = job.nodes.filter((node) => node.state === 'late' || node.state === 'lost')
    .map((node) => `${node.role} ${node.rank} is ${node.state}`);
  let text = job.waiting_for ? 'Waiting for ' + job.waiting_for + '.' : '';
  if (!text && late.length) text = late.join(', ') + '.';
  const slow = job.nodes.filter((node) => node.slow)
    .map((node) => `${node.role} ${node.rank} is slow: ${slowness(node, ' takes it ')} as long as the others`);
  if (!text && slow.length) text = slow.join('; ') + '.';
  if (job.end) text = job.end.exit_code ? `The job has ended with code ${job.end.exit_code}: ` +
    job.end.reason : 'The job has ended well.';
  news.hidden = !text;
  news.className = !job.end ? '' : job.end.exit_code ? 'bad' : 'good';
  say('news', text.charAt(0).toUpperCase() + text.slice(1));
}

function whatHappened(recovery) {
  const all = [['losing ', recovery.lost, ''], ['', recovery.joined, ' joined'], ['', recovery.left, ' left']]
    .filter(([, names]) => names.length)
    .map(([before, names, after]) => before + names.join(', ') + after);
  return all.join(', ') || 'the exchange hung';
}

function showLists(job) {
  const fill = (name, lines) => {
    find(name + '_section').hidden = lines.length === 0;
    find(name).replaceChildren(...lines.map((line) => element('li', line)));
  };
  fill('recoveries', job.recoveries.map((recovery) =>
    `Went on from iteration ${digits(recovery.iteration, 0)} after ${whatHappened(recovery)} ` +
    `(${recovery.cause}); ${milliseconds(recovery.still_ms)} without progress.`));
  fill('notices', job.notices.slice().reverse().map((notice) => `${notice.from}: ${notice.text}`));
}

let shown = null;

function show(job) {
  shown = job;
  document.title = (job.iterations ? Math.floor(100 * job.iteration / job.iterations) + '% ' : '') +
    job.job + ' – Poseidon';
  say('job', job.job);
  say('phase', job.phase);
  showNews(job);
  showFigures(job);
  const history = job.history;
  showCurve('loss_chart', history.iteration, history.loss, false);
  showCurve('throughput_chart', history.iteration, history.images_per_second, true);
  showNodes(job.nodes);
  showTimeline(job.timeline);
  showBuckets(job.buckets);
  showLists(job);
  document.body.dataset.version = job.version;
}

function connection(text, lost) {
  say('connection', text);
  find('connection').className = lost ? 'lost' : '';
}

// Follows the job by server-sent events. Where these end, the state is asked for now and then, and
// each time that there is an answer the page tries to follow again.
const follower = {
  name: Math.random().toString(36).slice(2),
  failures: 0,
  heard(job) {
    this.failures = 0;
    show(job);
    connection(job.end ? 'the scheduler has ended' : 'live', false);
  },
  follow() {
    const events = new EventSource('api/events?follower=' + this.name);
    events.onmessage = (event) => {
      const job = JSON.parse(event.data);
      this.heard(job);
      if (job.end) events.close();
    };
    events.onerror = () => {
      events.close();
      if (!shown || !shown.end) this.again();
    };
  },
  again() {
    setTimeout(() => this.ask(), Math.min(10000, 1000 * Math.pow(2, this.failures)));
  },
  async ask() {
    try {
      const answer = await fetch('api/job?follower=' + this.name, {cache: 'no-store'});
      if (!answer.ok) throw new Error(await answer.text());
      this.heard(await answer.json());
      if (!shown.end) this.follow();
    } catch (error) {
      if (++this.failures === 1 || !find('connection').textContent.startsWith('no connection')) {
        connection('no connection to the scheduler since ' + new Date().toLocaleTimeString() +
          '; trying again', true);
      }
      this.again();
    }
  },
};

function begin() {
  const stored = find('status').textContent.trim();
  if (stored) {
    const status = JSON.parse(stored);
    show(status);
    connection(status.end ? 'as it was at its end' : 'as it was when this file was written', false);
    return;
  }
  // The browser has it as a cookie now; it need not stay in the history.
  if (location.search.includes('token=')) history.replaceState(null, '', location.pathname);
  connection('connecting', false);
  follower.follow();
}

addEventListener('resize', () => { if (shown) show(shown); });
begin();
