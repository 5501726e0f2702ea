// What a volume and its claim wait for, and their events: by the why command, which reads the API
// with an administrator's kubeconfig. This node's own identity may not read events: no policy of the
// API server could confine that to this node's volumes.
import { useEffect, useMemo, useState } from 'react'
import { Button } from '@patternfly/react-core/dist/esm/components/Button'
import { Form, FormGroup } from '@patternfly/react-core/dist/esm/components/Form'
import { TextInput } from '@patternfly/react-core/dist/esm/components/TextInput'
import { Said } from './said.jsx'
import { ask, asking, throttled } from './host.js'
import { command } from './words.js'

// whyOf are the words of the command that tells of a volume, and of its claim where that is bound.
function whyOf ({ volume, claim, state }, kubeconfig) {
  const cut = claim?.indexOf('/')
  const about = claim && state === 'bound'
    ? [`pvc/${claim.slice(cut + 1)}`, `--namespace=${claim.slice(0, cut)}`]
    : [`pv/${volume}`]
  return ['why', ...about, ...(kubeconfig ? [`--kubeconfig=${kubeconfig}`] : [])]
}

// eventsOf are those of all parts of a page of why, the newest first.
const eventsOf = pages => pages.flatMap(page => (page.events ?? []).map(event => ({ ...event, of: page.object })))
  .sort((a, b) => b.at.localeCompare(a.at))

// Events are read when the page opens, and again when the journal has news of the volume.
export function Events ({ of, news }) {
  const [kubeconfig, setKubeconfig] = useState('')
  const [told, setTold] = useState({})
  const args = whyOf(of, kubeconfig)
  const line = command(asking(args))
  const refresh = useMemo(() => throttled(() => ask(args, 'try').then(
    page => setTold({ line, page }), error => setTold({ line, error: error.message }))), [line])
  useEffect(() => { refresh() }, [refresh, news])
  const { page, error } = told.line === line ? told : {}
  const pages = page ? [page, ...(page.parts ?? [])] : []
  const events = eventsOf(pages)
  const missing = error ?? page?.unseen?.join('\n')
  return (
    <section aria-labelledby="events">
      <h2 id="events">Events</h2>
      <p><code>{line}</code></p>
      {missing &&
        <Said variant="warning" title={error ? 'The events were not read' : 'Not all was read'}>
          <p>{missing}</p>
          <p>An administrator&apos;s kubeconfig reads events; this node&apos;s own identity may not. What the daemon
            told of the volume is in the journal.</p>
        </Said>}
      {(missing || kubeconfig) && <Kubeconfig set={setKubeconfig} />}
      {pages.map(one => (
        <p key={one.object} dir="auto">
          {one.object}: {one.state}; it waits for {one.waits || 'nothing'}{one.help && `; what helps: ${one.help}`}
        </p>
      ))}
      {page && events.length === 0 && !missing && <p>There are none of the last hour.</p>}
      <ul className="hp-events" aria-label="Events">
        {events.map(event => (
          <li key={`${event.of} ${event.reason} ${event.message} ${event.at}`} className={event.type === 'Warning' ? 'hp-warning' : ''}>
            <time dateTime={event.at}>{new Date(event.at).toLocaleString()}</time>{' '}
            <strong>{event.reason}</strong>{event.count > 1 && ` (${event.count} times)`}{' '}
            <span dir="auto">{event.message}</span> <small>{event.of}</small>
          </li>
        ))}
      </ul>
    </section>
  )
}

function Kubeconfig ({ set }) {
  const [file, setFile] = useState('')
  return (
    <Form className="hp-kubeconfig" onSubmit={event => { event.preventDefault(); set(file) }}>
      <FormGroup label="Kubeconfig of an administrator, a file of this host" fieldId="kubeconfig">
        <TextInput id="kubeconfig" value={file} onChange={(_, is) => setFile(is.trim())} />
      </FormGroup>
      <Button type="submit" variant="secondary">Read events</Button>
    </Form>
  )
}
