// What the page knows of the host: the JSON of the commands, systemd's unit, the journal. It asks
// nothing by itself but once: status.json (by inotify), the unit (by D-Bus) and the journal say when
// something changed.
const { cockpit } = window

export const PROGRAM = 'hostpath-provisioner'
export const UNIT = `${PROGRAM}.service`
const STATUS = `/run/${PROGRAM}/status.json`
const SCHEMA = 1 // daemon.SchemaVersion
export const SELDOM = 10000 // ms between two calls of a command that nobody waits for

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
      if (value.schema === SCHEMA) return resolve(value)
      reject(new Error(`the JSON of ${PROGRAM} has schema ${value.schema}, and this page reads ${SCHEMA}: ` +
        'install the page and the program of the same version'))
    }
    call.then(() => parse(), parse)
  })
}

// throttled calls fn at once, and then after each pause if it was asked for meanwhile. The pause is
// least ms, and ten times what fn took. A call that is urgent does not wait for it. fn returns a
// promise; no two run at a time.
export function throttled (fn, least) {
  let running = false; let again = false; let timer = null
  return function call (urgent) {
    if (running || (timer && !urgent)) { again ||= urgent ? 'urgent' : 'later'; return }
    clearTimeout(timer)
    running = true
    again = false
    const began = Date.now()
    fn().finally(() => {
      running = false
      const pause = Math.max(least, 10 * (Date.now() - began))
      timer = setTimeout(() => { timer = null; if (again) call() }, pause)
      if (again === 'urgent') call(true)
    })
  }
}

// urgentIn is of a status what people wait for: everything but times and sizes.
function urgentIn (text) {
  try {
    const s = JSON.parse(text)
    return JSON.stringify([s.pid, s.ready, s.api, s.configuration, s.refusedRequests, s.stalled, s.unconfiguredPools,
      s.pools.map(p => [p.since, p.reason, p.findings?.map(f => f.reason), p.states, p.volumes, p.worker])])
  } catch { return text }
}

// followStatus calls told({status}), told({error}) now and whenever the daemon's status or its unit
// changes. It returns what stops that.
export function followStatus (told) {
  const refresh = throttled(() => ask(['status']).then(
    status => told({ status }), error => told({ error: error.message })), SELDOM)
  let seen; let handle; let watch
  const rewatch = () => {
    watch?.remove()
    handle?.close()
    handle = cockpit.file(STATUS)
    watch = handle.watch(text => {
      const now = text === null ? null : urgentIn(text)
      refresh(now !== seen)
      seen = now
    })
  }
  rewatch()
  const bus = cockpit.dbus('org.freedesktop.systemd1', { bus: 'system', superuser: 'try' })
  const path = `/org/freedesktop/systemd1/unit/${UNIT.replace(/[^A-Za-z0-9]/g, c => `_${c.charCodeAt(0).toString(16)}`)}`
  bus.call('/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager', 'Subscribe', []).catch(() => {})
  const unit = bus.proxy('org.freedesktop.systemd1.Unit', path)
  let state
  unit.onchanged = () => {
    told({ unit: { active: unit.ActiveState, sub: unit.SubState, enabled: unit.UnitFileState } })
    if (state !== undefined && state !== unit.ActiveState) {
      rewatch() // the directory may be there only now
      refresh(true)
    }
    state = unit.ActiveState
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

// run runs a command as an administrator, and calls each(text) with what it prints.
export function run (argv, each) {
  const call = cockpit.spawn(argv, { err: 'out', superuser: 'require', environ: ['LC_ALL=C.UTF-8'] })
  call.stream(each)
  return new Promise((resolve, reject) => call.then(resolve, reject))
}
