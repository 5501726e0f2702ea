// The page: what hostpath-provisioner's commands tell of this host, and their actions.
import '@patternfly/react-core/dist/styles/base.css'
import './page.css'
import { useEffect, useRef, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { Nav, NavItem, NavList } from '@patternfly/react-core/dist/esm/components/Nav'
import { CommandDialog } from './actions.jsx'
import { Said } from './said.jsx'
import { Overview } from './overview.jsx'
import { Volumes } from './volumes.jsx'
import { Volume } from './volume.jsx'
import { ask, followStatus, throttled, UNIT } from './host.js'
import { followTheme } from './theme.js'

const { cockpit } = window

function useHost () {
  const [host, setHost] = useState({})
  useEffect(() => followStatus(told => setHost(was => ({
    ...was, ...told, ...(told.status && { error: undefined }), ...(told.error && { status: undefined }),
  }))), [])
  return host
}

// useVolumes lists the volumes again when the status has news of them, of the pools or of the API:
// the command asks the disks and the API. It does so once more after a rest: the daemon counts every
// 5 seconds, and no status tells of a volume that came and went meanwhile.
function useVolumes ({ state, volumes, sizes } = {}, admin, shown) {
  const [list, setList] = useState({})
  const refresh = useRef(null)
  const listed = useRef(null)
  refresh.current ??= throttled(() => ask(['volumes'], 'try').then(
    found => setList({ found }), error => setList({ error: error.message })), 3)
  const of = JSON.stringify([admin, state, volumes])
  useEffect(() => {
    if (!shown || admin === null || state === undefined) return
    refresh.current(of !== listed.current)
    refresh.current()
    listed.current = of
  }, [of, sizes, shown])
  return list
}

function useAdmin () {
  const [admin, setAdmin] = useState(null)
  useEffect(() => {
    const permission = cockpit.permission({ admin: true })
    const tell = () => setAdmin(permission.allowed)
    permission.addEventListener('changed', tell)
    tell()
    return () => permission.close()
  }, [])
  return admin
}

function usePath () {
  const [path, setPath] = useState(cockpit.location.path)
  useEffect(() => {
    const moved = () => setPath(cockpit.location.path)
    cockpit.addEventListener('locationchanged', moved)
    return () => cockpit.removeEventListener('locationchanged', moved)
  }, [])
  return path
}

// Trouble is why there is no status: the daemon does not run, or its program is another version's.
function Trouble ({ error, unit }) {
  const state = unit?.active ? ` (${UNIT}: ${unit.active})` : ''
  return (
    <Said variant="danger" title={`There is no status${state}`}>
      <p>{error}</p>
      {unit?.active !== 'active' && <p>To start the daemon: <code>systemctl start {UNIT}</code></p>}
    </Said>
  )
}

function Page () {
  const host = useHost()
  const admin = useAdmin()
  const [section, pool, name] = usePath()
  const volumes = useVolumes(host.news, admin, section === 'volumes')
  const one = section === 'volumes' && name !== undefined
  const [dialog, setDialog] = useState(null) // stays, whatever becomes of what is beneath
  return (
    <main className="hp-page">
      <Nav variant="horizontal" aria-label="Sections">
        <NavList>
          <NavItem to="#/" isActive={section !== 'volumes'}>Pools</NavItem>
          <NavItem to="#/volumes" isActive={section === 'volumes'}>Volumes</NavItem>
        </NavList>
      </Nav>
      {host.error && <Trouble error={host.error} unit={host.unit} />}
      {admin === false &&
        <Said variant="info" title="Actions and volumes need administrative access" />}
      {section !== 'volumes' && <Overview {...host} admin={admin} open={setDialog} />}
      {section === 'volumes' && !one && <Volumes {...volumes} />}
      {one && <Volume {...volumes} pool={pool} name={name} key={JSON.stringify([pool, name, admin])} />}
      {dialog && <CommandDialog {...dialog} close={() => setDialog(null)} />}
    </main>
  )
}

followTheme()
cockpit.transport.wait(() => createRoot(document.getElementById('page')).render(<Page />))
