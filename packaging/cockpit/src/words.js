// Sizes, times and commands as people read them.
import { useEffect, useState } from 'react'

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB']

// size is as the commands print it: "427 MiB", "1.5 GiB"; "-" is not known.
export function size (bytes) {
  if (bytes === undefined || bytes === null) return '-'
  let unit = 0
  while (bytes >= 1024 && unit < UNITS.length - 1) { bytes /= 1024; unit++ }
  return `${unit > 0 && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${UNITS[unit]}`
}

export function age (time, now = Date.now()) {
  const seconds = Math.max(0, (now - Date.parse(time)) / 1000)
  if (!time || !Number.isFinite(seconds)) return '-'
  if (seconds < 120) return `${Math.floor(seconds)} s`
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`
  return `${Math.floor(seconds / 86400)} d`
}

// useMinute has ages counted again.
export function useMinute () {
  const [, tick] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => tick(n => n + 1), 60000)
    return () => clearInterval(timer)
  }, [])
}

// command is argv as a shell takes it.
export const command = argv => argv.map(word =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`).join(' ')

// short keeps both ends of a name that is too long for a picture.
export const short = (name, most) => name.length <= most
  ? name
  : `${name.slice(0, Math.ceil(most / 2) - 1)}…${name.slice(1 - Math.floor(most / 2))}`

// stateOf is a pool's state in one word, as the status command has it.
export function stateOf (pool) {
  if (pool.open) return 'open'
  if (pool.reason === 'PoolCordoned') return 'cordoned'
  return pool.full ? 'full' : 'closed'
}
