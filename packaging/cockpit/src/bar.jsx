// What is on a pool's filesystem, as a bar with its figures.
import { size } from './words.js'

// partsOf are the parts of the filesystem in bytes. More may be promised than there is (overcommit):
// then the bar is as long as all of it.
export function partsOf (pool) {
  const used = pool.used ?? 0
  const promised = Math.max(0, (pool.promised ?? 0) - used)
  const [free, reserve] = [pool.free ?? 0, pool.reserve ?? 0]
  const other = Math.max(0, (pool.size ?? 0) - used - promised - free - reserve)
  return { used, promised, other, free, reserve }
}

export function Bar ({ pool, volumes }) {
  const parts = partsOf(pool)
  const whole = Object.values(parts).reduce((a, b) => a + b, 0) || 1
  const figures = [
    ['used', 'Used', `${pool.usedEstimate ? '~' : ''}${size(pool.used)}`],
    ['promised', 'Promised', size(pool.promised)],
    ['other', 'Of others', size(pool.free === undefined ? undefined : parts.other)],
    ['free', 'Free for a volume', size(pool.free)],
    ['reserve', 'Reserve', size(pool.size ? pool.reserve ?? 0 : undefined)],
    ['size', 'Size', size(pool.size || undefined)],
    ['volumes', 'Volumes', volumes ?? '-'],
  ]
  let x = 0
  return (
    <div className="hp-room">
      {pool.size > 0 &&
        <svg className="hp-bar" width="100%" height="20" role="img" aria-label={`Room in pool ${pool.name}: ` +
          figures.slice(0, 5).map(([, name, value]) => `${name} ${value}`).join(', ')}>
          {Object.entries(parts).map(([name, bytes]) => {
            const from = x
            x += 100 * bytes / whole
            return <rect key={name} className={`hp-${name}`} x={`${from}%`} width={`${100 * bytes / whole}%`} height="20" />
          })}
        </svg>}
      <dl className="hp-figures">
        {figures.map(([name, label, value]) =>
          <div key={name}><dt><span className={`hp-key hp-${name}`} />{label}</dt><dd>{value}</dd></div>)}
      </dl>
    </div>
  )
}
