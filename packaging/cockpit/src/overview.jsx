// The overview: the service, and a card for each pool.
import { Button } from '@patternfly/react-core/dist/esm/components/Button'
import { Card, CardBody, CardFooter, CardHeader, CardTitle } from '@patternfly/react-core/dist/esm/components/Card'
import { Label } from '@patternfly/react-core/dist/esm/components/Label'
import { Spinner } from '@patternfly/react-core/dist/esm/components/Spinner'
import { adopt, check, cordon, imports, prepare } from './actions.jsx'
import { Bar } from './bar.jsx'
import { Said } from './said.jsx'
import { Picture } from './picture.jsx'
import { age, stateOf, useMinute } from './words.js'

const COLOURS = { open: 'green', cordoned: 'orange', full: 'orange', closed: 'red' }

export function Overview ({ status, unit, admin, error, open }) {
  useMinute()
  if (!status) {
    return (
      <>
        <h1>Pools</h1>
        {!error && <Spinner aria-label="Reading the status" />}
      </>
    )
  }
  return (
    <>
      <Service status={status} unit={unit} />
      <div className="hp-pools">
        {status.pools.map(pool =>
          <Pool key={pool.name} pool={pool} admin={admin} open={open} ready={status.ready} />)}
      </div>
    </>
  )
}

function Service ({ status, unit }) {
  const running = unit?.active === 'active'
  const api = status.api || status.refused?.find(r => !r.optional)?.message
  return (
    <section className="hp-service" aria-label="Service">
      <h1>{status.node}</h1>
      <Label color={running ? 'green' : 'red'}>service: {unit?.active ?? 'unknown'}</Label>
      <Label color={api ? 'red' : status.ready ? 'green' : 'orange'}>
        API: {api ? 'trouble' : status.ready ? 'connected' : 'being read'}
      </Label>
      <span>{status.version}, provisioner {status.provisioner}</span>
      <p className="hp-sentence" dir="auto">{status.sentence}</p>
      {api && <Said variant="danger" title="The Kubernetes API">{api}</Said>}
      {status.stalled && <Said variant="danger" title="The daemon makes no progress">{status.stalled}</Said>}
      {status.configuration &&
        <Said variant="warning" title="The configuration on disk is not in force">{status.configuration}</Said>}
      {Object.entries(status.unconfiguredPools ?? {}).map(([name, volumes]) =>
        <Said key={name} variant="warning" title={`Pool ${name} is not configured, and this node has volumes in it: ${volumes}`} />)}
      {status.work?.map(w => <p key={`${w.kind} ${w.volume}`}>{w.kind} of {w.volume}: {w.sentence}</p>)}
    </section>
  )
}

function Pool ({ pool, admin, open, ready }) {
  const state = stateOf(pool)
  const id = `pool-${pool.name}`
  const others = pool.findings?.filter(f => f.reason !== pool.reason) ?? []
  const lost = ['missing', 'damaged'].filter(s => pool.states?.[s])
  return (
    <Card component="section" aria-labelledby={id} data-pool={pool.name}>
      <CardHeader>
        <div className="hp-head">
          <CardTitle component="h2" id={id}><bdi>{pool.name}</bdi></CardTitle>
          <Label color={COLOURS[state]}>{state}</Label>
          {pool.scope === 'shared' && <span>leader: {pool.worker || 'none'}</span>}
          <span>for <time dateTime={pool.since} title={pool.since}>{age(pool.since)}</time></span>
        </div>
      </CardHeader>
      <CardBody>
        <div className="hp-said" aria-live="polite">
          {!pool.open &&
            <Said variant={state === 'closed' ? 'danger' : 'warning'} title={pool.reason}>
              <p dir="auto">{pool.message}</p>
              {pool.hint && <p>Hint: {pool.hint}</p>}
            </Said>}
          {lost.map(s => <Said key={s} variant="danger" title={`Volumes that are ${s}: ${pool.states[s]}`} />)}
        </div>
        {others.map(f =>
          <Said key={f.reason} isPlain variant="warning" title={f.reason}><p dir="auto">{f.message}</p></Said>)}
        <div className="hp-facts">
          <Bar pool={pool} volumes={ready ? pool.volumes : undefined} />
          <Picture pool={pool} />
        </div>
      </CardBody>
      <CardFooter className="hp-actions">
        {[check, cordon, prepare, adopt, imports].map(action => {
          const { label, ...dialog } = action(pool)
          return (
            <Button key={label} variant="secondary" isDisabled={!admin} onClick={() => open(dialog)}>
              {label}
            </Button>
          )
        })}
      </CardFooter>
    </Card>
  )
}
