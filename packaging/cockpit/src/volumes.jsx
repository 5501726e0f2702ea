// The table of all that is in the pools: sorted, filtered, a page at a time, so that thousands cost
// no more than the page.
import { memo, useDeferredValue, useMemo, useState } from 'react'
import { FormSelect, FormSelectOption } from '@patternfly/react-core/dist/esm/components/FormSelect'
import { Pagination } from '@patternfly/react-core/dist/esm/components/Pagination'
import { SearchInput } from '@patternfly/react-core/dist/esm/components/SearchInput'
import { Spinner } from '@patternfly/react-core/dist/esm/components/Spinner'
import { Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core/dist/esm/components/Toolbar'
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table'
import { Said } from './said.jsx'
import { age, size, useMinute } from './words.js'

const { cockpit } = window

const claimOf = v => v.claim?.slice(v.claim.indexOf('/') + 1) ?? ''
const namespaceOf = v => v.claim?.slice(0, v.claim.indexOf('/')) ?? ''

// Each column: its heading, what it is sorted by, and what is shown where that is something else.
const COLUMNS = [
  ['Volume', v => v.volume, v => <a href={linkTo(v)}><bdi>{v.volume}</bdi></a>],
  ['Claim', claimOf],
  ['Namespace', namespaceOf],
  ['Pool', v => v.pool],
  ['Size', v => v.size ?? -1, v => size(v.size || undefined)],
  ['Used', v => v.used ?? -1, v => `${v.estimate ? '~' : ''}${size(v.used)}`],
  ['State', v => v.state, v => v.node ? `${v.state} (of node ${v.node})` : v.state],
  ['Age', v => -(Date.parse(v.created) || Infinity), v => age(v.created)],
  ['Source', v => v.copyOf ?? ''],
]

// linkTo escapes what Cockpit's encode leaves: a "#" ends the part of an address that its shell keeps.
export const linkTo = v => `#${cockpit.location.encode(['volumes', v.pool, v.volume]).replaceAll('#', '%23')}`

const words = new Intl.Collator(undefined, { numeric: true })
const compare = (a, b) => typeof a === 'number' ? a - b : words.compare(a, b)

function chosen (volumes, { text, state, pool, column, direction }) {
  const of = COLUMNS[column][1]
  const want = text.toLowerCase()
  const kept = volumes.filter(v => (!state || v.state === state) && (!pool || v.pool === pool) &&
    (!want || [v.volume, v.claim, v.copyOf, v.directory].some(word => word?.toLowerCase().includes(want))))
  const keyed = kept.map(v => [of(v), v]).sort(([a], [b]) => compare(a, b))
  if (direction === 'desc') keyed.reverse()
  return keyed.map(([, v]) => v)
}

export const Volumes = memo(function Volumes ({ found, error }) {
  const [view, setView] = useState({ text: '', state: '', pool: '', column: 0, direction: 'asc', page: 1, per: 50 })
  const now = useDeferredValue(view)
  useMinute()
  const all = found?.volumes ?? []
  const rows = useMemo(() => chosen(all, now), [found, now])
  const change = more => setView(was => ({ ...was, page: 1, ...more }))
  if (!found) {
    return (
      <>
        <h1>Volumes</h1>
        {error && <Said variant="danger" title="The volumes were not listed">{error}</Said>}
        {!error && <Spinner aria-label="Listing the volumes" />}
      </>
    )
  }
  const page = Math.min(now.page, Math.max(1, Math.ceil(rows.length / now.per)))
  const several = of => [...new Set(all.map(of))].sort(words.compare)
  return (
    <>
      <h1>Volumes</h1>
      <Troubles found={found} />
      <Toolbar>
        <ToolbarContent>
          <ToolbarItem>
            <SearchInput aria-label="Filter volumes" placeholder="Volume, claim, source" value={view.text}
              onChange={(_, text) => change({ text })} onClear={() => change({ text: '' })} />
          </ToolbarItem>
          <Choice label="State" value={view.state} among={several(v => v.state)} set={state => change({ state })} />
          <Choice label="Pool" value={view.pool} among={several(v => v.pool)} set={pool => change({ pool })} />
          <ToolbarItem variant="pagination">
            <Pagination isCompact itemCount={rows.length} page={page} perPage={view.per} titles={{ paginationAriaLabel: 'Pages of volumes' }}
              perPageOptions={[20, 50, 100, 500].map(value => ({ title: `${value}`, value }))}
              onSetPage={(_, page) => change({ page })} onPerPageSelect={(_, per) => change({ per })} />
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      <div className="hp-table">
        <Table variant="compact" aria-label="Volumes" aria-rowcount={rows.length}>
          <Thead>
            <Tr>
              {COLUMNS.map(([heading], columnIndex) => (
                <Th key={heading} sort={{
                  columnIndex, sortBy: { index: view.column, direction: view.direction },
                  onSort: (_, column, direction) => change({ column, direction }),
                }}>{heading}</Th>
              ))}
            </Tr>
          </Thead>
          <Tbody>
            {rows.slice((page - 1) * now.per, page * now.per).map(v => (
              <Tr key={`${v.pool}/${v.state}/${v.directory}/${v.volume}`}>
                {COLUMNS.map(([heading, of, shown]) =>
                  <Td key={heading} dataLabel={heading}>{shown ? shown(v) : <bdi>{of(v)}</bdi>}</Td>)}
              </Tr>
            ))}
          </Tbody>
        </Table>
      </div>
      {rows.length === 0 && <p className="hp-none">{all.length ? 'No volume fits the filter.' : 'There are no volumes.'}</p>}
    </>
  )
})

// Troubles are why the list is not whole.
function Troubles ({ found }) {
  return (
    <>
      {found.api && <Said variant="warning" title="The Kubernetes API was not read">{found.api}</Said>}
      {found.pools.filter(p => p.closed).map(p =>
        <Said key={p.name} variant="warning" title={`Pool ${p.name}`}>{p.closed}</Said>)}
    </>
  )
}

function Choice ({ label, value, among, set }) {
  return (
    <ToolbarItem>
      <FormSelect aria-label={label} value={value} onChange={(_, is) => set(is)}>
        <FormSelectOption value="" label={`${label}: any`} />
        {among.map(one => <FormSelectOption key={one} value={one} label={one} />)}
      </FormSelect>
    </ToolbarItem>
  )
}
