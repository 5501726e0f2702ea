// What the page knows of the host: the JSON of the commands, systemd's unit, the journal. It asks
// nothing by itself but once: status.json (by inotify), the unit (by D-Bus) and the journal say when
// something changed.
const { cockpit } = window

export const PROGRAM = 'hostpath-provisioner'
export const UNIT = `${PROGRAM}.service`
const STATUS = `/run/${PROGRAM}/status.json`
const SCHEMA = 1 // daemon.SchemaVersion
const SELDOM = 10000 // ms between two calls of a command that nobody waits for
const SOON = 1000 // ms between two of one that people wait for
const now = () => performance.now() // ms, of a clock that is never set

// asking is the command that ask runs.
export const asking = args => [PROGRAM, ...args, '--json']

// ask resolves to the JSON of a command, also of one that exits with 1 because something is wrong.
// It rejects with an error that has the words of the command.
export function ask (args, superuser) {
  let out = ''
  const call = cockpit.spawn(asking(args), { err: 'message', superuser })
  call.stream(text => { out += text })
  return new Promise((resolve, reject) => {
    const parse = error => {
      let value
      try { value = JSON.parse(out) } catch { return reject(error ?? new Error(`no JSON: ${out.slice(0, 200)}`)) }
      if (value?.schema === SCHEMA) return resolve(value)
      reject(new Error(`the JSON of ${PROGRAM} has schema ${value?.schema}, and this page reads ${SCHEMA}: ` +
        'install the page and the program of the same version'))
    }
    call.then(() => parse(), parse)
  })
}

// throttled calls fn at once, and again where it was asked for meanwhile: SELDOM after it has ended,
// or as long as it took. An urgent call, for which people wait, is made SOON after that: so many in
// a row, and one more for each time of rest. What changes all the time is thus asked SELDOM, too.
// fn returns a promise; no two run at a time.
export function throttled (fn, inRow = 0) {
  let running = false; let asked = null; let timer; let soon = 0; let rested = 0; let paid = 0
  const next = () => {
    if (running || asked === null) return
    clearTimeout(timer)
    const at = asked ? Math.min(rested, Math.max(soon, paid - inRow * SELDOM)) : rested
    if (at > now()) { timer = setTimeout(next, at - now()); return }
    const [urgent, began] = [asked, now()]
    running = true
    asked = null
    fn().finally(() => {
      const rest = Math.max(SELDOM, now() - began)
      running = false
      soon = now() + SOON
      rested = now() + rest
      if (urgent) paid = Math.max(paid, now()) + rest
      next()
    })
  }
  return (urgent = false) => { asked ||= urgent; next() }
}

// newsIn is what a status has that people wait for: of the pools' state, and of their volumes; and
// how large these are.
function newsIn (text) {
  try {
    const s = JSON.parse(text)
    const pools = (...of) => JSON.stringify(s.pools.map(p => of.map(one => one(p))))
    return {
      state: JSON.stringify([s.pid, s.ready, s.api, s.configuration, s.refusedRequests, s.stalled, s.unconfiguredPools]) +
        pools(p => p.since, p => p.reason, p => p.findings?.map(f => f.reason), p => p.worker,
          p => p.states?.missing, p => p.states?.damaged),
      volumes: pools(p => p.name, p => p.volumes, p => p.states),
      sizes: pools(p => p.promised, p => p.used),
    }
  } catch { return { state: text } }
}

// followStatus calls told({status}), told({error}), told({news}), told({unit}) now and whenever the
// daemon's status or its unit changes. It returns what stops that.
export function followStatus (told) {
  const refresh = throttled(() => ask(['status']).then(
    status => told({ status }), error => told({ error: error.message })), 20)
  let state; let handle; let watch
  const rewatch = () => {
    watch?.remove()
    handle?.close()
    handle = cockpit.file(STATUS)
    watch = handle.watch(text => {
      const news = newsIn(text)
      told({ news })
      refresh(news.state !== state)
      state = news.state
    })
  }
  rewatch()
  const bus = cockpit.dbus('org.freedesktop.systemd1', { bus: 'system' })
  const path = `/org/freedesktop/systemd1/unit/${UNIT.replace(/[^A-Za-z0-9]/g, c => `_${c.charCodeAt(0).toString(16)}`)}`
  bus.call('/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager', 'Subscribe', []).catch(() => {})
  const unit = bus.proxy('org.freedesktop.systemd1.Unit', path)
  let active
  unit.onchanged = () => {
    told({ unit: { active: unit.ActiveState, sub: unit.SubState, enabled: unit.UnitFileState } })
    if (active !== undefined && active !== unit.ActiveState) {
      rewatch() // the directory may be there only now
      refresh(true)
    }
    active = unit.ActiveState
  }
  return () => { watch.remove(); handle.close(); bus.close() }
}

// journalOf is the command that has what the page shows: of a volume, by its name and its claim. It
// goes on after the cursor of an entry.
export function journalOf ({ volume, claim, after }) {
  const matches = [`HOSTPATH_VOLUME=${volume}`]
  if (claim) matches.push('+', `HOSTPATH_CLAIM=${claim}`)
  const from = after ? [`--after-cursor=${after}`] : []
  return ['journalctl', '--follow', '--lines=100', '--output=json', '--all', ...from, ...matches]
}

// followJournal calls each(entry) for every entry of a volume, and ended(why) where the command has
// ended: it is started again, at once and then every 10 seconds.
export function followJournal (of, each, ended) {
  let stopped = false; let call; let timer; let after; let starts = 0
  const start = () => {
    let rest = ''
    call = cockpit.spawn(journalOf({ ...of, after }), { err: 'message', superuser: 'try' })
    call.stream(text => {
      const lines = (rest + text).split('\n')
      rest = lines.pop()
      for (const line of lines) {
        let entry
        try { entry = JSON.parse(line) } catch { continue }
        after = entry.__CURSOR
        each(entry)
      }
    })
    const end = error => {
      if (stopped) return
      ended(error?.message || 'it ended')
      timer = setTimeout(start, starts++ ? SELDOM : 0)
    }
    call.then(() => end(), end)
  }
  start()
  return () => { stopped = true; clearTimeout(timer); call.close('cancelled') }
}

// text is a field of the journal, which is an array of bytes where it is not plain text.
export function text (field) {
  return Array.isArray(field) ? new TextDecoder().decode(new Uint8Array(field)) : String(field ?? '')
}

// run runs a command as an administrator, and calls each(text) with what it prints. ended is the
// promise of its end; stop has it end as Ctrl-C does.
export function run (argv, each) {
  const call = cockpit.spawn(argv, { err: 'out', superuser: 'require', environ: ['LC_ALL=C.UTF-8'] })
  call.stream(each)
  return { ended: new Promise((resolve, reject) => call.then(resolve, reject)), stop: () => call.close('cancelled') }
}
