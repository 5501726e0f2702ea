// A pool's mount in cross-section: device, filesystem, mount point, the directory beneath, the marker.
import { short } from './words.js'

const WIDTH = 46 // characters in a row

// layersOf are the rows from above. A row that is not as it should be is bad; one that is not known
// is neither.
export function layersOf (pool) {
  const point = pool.mountPoint || pool.path
  const has = (...reasons) => pool.findings?.some(f => reasons.includes(f.reason))
  const mounted = pool.mount?.point === point
  const plain = !mounted && pool.open // require_mount = false
  const on = pool.mount ? `${pool.mount.source} (${pool.mount.fsType})` : 'unknown'
  let beneath = 'immutable'
  if (has('NotImmutable')) beneath = 'not immutable'
  else if (has('ImmutableUnknown', 'LookNotPermitted', 'LookFailed', 'NotAnswering')) beneath = 'not known'
  else if (!mounted && has('PathMissing', 'NotADirectory')) beneath = 'missing'
  const rows = [
    { name: 'Device', what: mounted || plain ? on : 'not mounted', bad: !mounted && !plain },
    { name: 'Marker', what: pool.marker || 'not seen', bad: !pool.marker },
    { name: 'Mount point', what: plain ? `${point} (a plain directory)` : point, bad: !mounted && !plain },
  ]
  if (!plain) rows.push({ name: 'Beneath', what: `${point}: ${beneath}`, bad: ['missing', 'not immutable'].includes(beneath) })
  if (!mounted && !plain) rows.push({ name: 'It lies on', what: on })
  return rows
}

export function Picture ({ pool }) {
  const rows = layersOf(pool)
  const words = rows.map(r => `${r.name}: ${r.what}`).join('; ')
  return (
    <svg className="hp-picture" viewBox={`0 0 460 ${rows.length * 34 + 2}`} role="img" aria-label={`Mount of pool ${pool.name}. ${words}`}>
      {rows.map(({ name, what, bad }, i) => (
        <g key={name} className={bad ? 'hp-bad' : ''} transform={`translate(1 ${i * 34 + 1})`}>
          <title>{`${name}: ${what}`}</title>
          <rect width="458" height="28" rx="5" />
          <text x="10" y="19" className="hp-name">{name}</text>
          <text x="110" y="19">{short(what, WIDTH)}</text>
        </g>
      ))}
    </svg>
  )
}
