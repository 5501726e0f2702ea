// One volume: what is recorded of it, its snapshots and copies, its events, and the journal as it
// comes.
import { useEffect, useState } from 'react'
import { Breadcrumb, BreadcrumbItem } from '@patternfly/react-core/dist/esm/components/Breadcrumb'
import { Spinner } from '@patternfly/react-core/dist/esm/components/Spinner'
import { Events } from './events.jsx'
import { Said } from './said.jsx'
import { followJournal, journalOf, text } from './host.js'
import { linkTo } from './volumes.jsx'
import { command, size } from './words.js'

const MOST = 500 // lines of the journal

const FACTS = [
  ['Claim', v => v.claim], ['Made for the claim', v => v.madeFor], ['State', v => v.state], ['Kind', v => v.kind],
  ['Class', v => v.class], ['Pool', v => v.pool], ['Directory in the pool', v => v.directory],
  ['Size', v => v.size && size(v.size)], ['Promised', v => v.promised && size(v.promised)],
  ['Used', v => v.used !== undefined && `${v.estimate ? '~' : ''}${size(v.used)}`],
  ['Limit', v => v.limit && size(v.limit)], ['Inodes used', v => v.inodesUsed], ['Inodes at most', v => v.inodesLimit],
  ['Measured', v => v.measured], ['Created', v => v.created], ['Copied from', v => v.copyOf],
  ['Of node', v => v.node], ['Watched', v => v.unwatched && 'no: the object lacks this node\'s labels'],
]

export function Volume ({ found, error, pool, name }) {
  const all = found?.volumes.filter(one => one.pool === pool && one.volume === name) ?? []
  const v = all[0]
  const journal = useJournal(name, v?.claim)
  const copies = v ? found.volumes.filter(one => one.copyOf === name) : []
  return (
    <>
      <Breadcrumb>
        <BreadcrumbItem to="#/volumes">Volumes</BreadcrumbItem>
        <BreadcrumbItem isActive><bdi>{name}</bdi></BreadcrumbItem>
      </Breadcrumb>
      <h1 className="hp-title"><bdi>{name}</bdi></h1>
      {error && <Said variant="danger" title="The volumes were not listed">{error}</Said>}
      {!found && !error && <Spinner aria-label="Listing the volumes" />}
      {found && !v && <Said variant="warning" title={`Pool ${pool} has no such volume any more`} />}
      {all.map(one => <Recorded key={`${one.state} ${one.directory}`} of={one} />)}
      <h2>Snapshots and copies</h2>
      {copies.length === 0 && <p>There are none in the pools.</p>}
      <ul>{copies.map(one => <li key={`${one.pool}/${one.volume}`}><a href={linkTo(one)}><bdi>{one.volume}</bdi></a>, {one.kind || 'volume'}, {one.state}</li>)}</ul>
      {v?.claim && !v.kind && <Events of={v} news={journal.lines[0]?.__CURSOR} />}
      <Journal volume={name} claim={v?.claim} {...journal} />
    </>
  )
}

// Recorded is one of several where things of one name are in the pool, and in its archive or trash.
function Recorded ({ of: v }) {
  return (
    <dl className="hp-record">
      {FACTS.map(([label, of]) => [label, of(v)]).filter(([, value]) => value || value === 0).map(([label, value]) =>
        <div key={label}><dt>{label}</dt><dd><bdi>{value}</bdi></dd></div>)}
    </dl>
  )
}

function useJournal (volume, claim) {
  const [lines, setLines] = useState([])
  const [ended, setEnded] = useState(null)
  useEffect(() => {
    setLines([])
    setEnded(null)
    return followJournal({ volume, claim }, entry => {
      setEnded(null)
      setLines(was => [entry, ...was].slice(0, MOST))
    }, setEnded)
  }, [volume, claim])
  return { lines, ended }
}

function Journal ({ volume, claim, lines, ended }) {
  return (
    <section aria-labelledby="journal">
      <h2 id="journal">Journal</h2>
      <p><code>{command(journalOf({ volume, claim }))}</code></p>
      {ended && <Said variant="warning" title="The journal is not followed">{ended}</Said>}
      <div className="hp-journal" role="log" tabIndex={0} aria-labelledby="journal">
        {lines.map(entry => (
          <p key={entry.__CURSOR} className={Number(entry.PRIORITY) <= 4 ? 'hp-warning' : ''}>
            <time>{new Date(Number(entry.__REALTIME_TIMESTAMP) / 1000).toLocaleString()}</time>{' '}
            <strong>{text(entry.HOSTPATH_REASON)}</strong> <span dir="auto">{text(entry.MESSAGE)}</span>
          </p>
        ))}
      </div>
    </section>
  )
}
