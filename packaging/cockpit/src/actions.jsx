// The actions: each is one or more commands of the program, shown before they are run.
import { useEffect, useRef, useState } from 'react'
import { Button } from '@patternfly/react-core/dist/esm/components/Button'
import { Checkbox } from '@patternfly/react-core/dist/esm/components/Checkbox'
import { Form, FormGroup } from '@patternfly/react-core/dist/esm/components/Form'
import { Modal, ModalBody, ModalFooter, ModalHeader } from '@patternfly/react-core/dist/esm/components/Modal'
import { TextInput } from '@patternfly/react-core/dist/esm/components/TextInput'
import { PROGRAM, run } from './host.js'
import { command } from './words.js'

// An action of a pool has the dialog's title, fields (an option of the commands each) and steps.
// steps(values) are of what the fields have; after is the step that has to be tried before.

const program = (...args) => [PROGRAM, ...args]

export const check = pool => ({
  label: 'Check now',
  title: `Check pool ${pool.name}`,
  steps: () => [{ argv: program('check', pool.name) }],
})

export const cordon = pool => {
  const verb = pool.findings?.some(f => f.reason === 'PoolCordoned') ? 'uncordon' : 'cordon'
  return {
    label: verb === 'cordon' ? 'Cordon' : 'Uncordon',
    title: verb === 'cordon' ? `Take no new volumes in ${pool.name}` : `Take new volumes in ${pool.name} again`,
    steps: () => [{ argv: program('pool', verb, pool.name) }],
  }
}

export const prepare = pool => ({
  label: 'Prepare…',
  title: `Prepare pool ${pool.name}`,
  text: 'The bare mount point is made immutable, then the storage is mounted, then its filesystem is marked as ' +
    'this pool\'s. The mount has to be in /etc/fstab, or be a mount unit. What is done already changes nothing.',
  steps: () => [
    { text: 'The mount point, or the marker where the storage is mounted', argv: program('prepare', pool.name) },
    { text: 'The storage, where it is not mounted', argv: ['mount', pool.mountPoint || pool.path] },
    { text: 'The marker', argv: program('prepare', pool.name) },
    { text: 'Is all as it should be?', argv: program('check', pool.name) },
  ],
})

const kubeconfig = { flag: '--kubeconfig', label: 'Kubeconfig of an administrator, a file of this host (optional)' }

// dryFirst are a dry run and the same command without it, with the options of the fields.
const dryFirst = argv => values => {
  const all = [...argv, ...Object.entries(values).filter(([, value]) => value)
    .map(([flag, value]) => value === true ? flag : `${flag}=${value}`)]
  return [
    { text: 'A dry run, which changes nothing', argv: [...all, '--dry-run'] },
    { text: 'The same, done', argv: all, after: 0, danger: true },
  ]
}

export const adopt = pool => ({
  label: 'Adopt…',
  title: `Adopt volumes of other provisioners in ${pool.name}`,
  fields: [
    { flag: '--from-csi', label: 'CSI driver that made them (optional)' },
    { flag: '--stopped', label: 'Provisioner whose program is stopped, whatever the cluster shows (optional)' },
    { flag: '--yes-this-node-has-the-data', label: 'This node has the data of volumes that name no node', toggle: true },
    { flag: '--yes-nothing-runs-outside', label: 'No other program runs outside of the cluster', toggle: true },
    { flag: '--released', label: 'Also volumes that are removed as soon as they are adopted', toggle: true },
    kubeconfig,
  ],
  steps: dryFirst(program('adopt', pool.name)),
})

export const imports = pool => ({
  label: 'Import…',
  title: `Import a moved disk into ${pool.name}`,
  text: 'A node is to be named, or the cluster is a new one.',
  fields: [
    { flag: '--from-node', label: 'The disk was this node\'s' },
    { flag: '--new-cluster', label: 'This cluster knows nothing of the volumes', toggle: true },
    { flag: '--claims', label: 'With that: make the claims, too', toggle: true },
    kubeconfig,
  ],
  steps: dryFirst(program('import', pool.name)),
})

// wordsOf are those of a command that did not end by itself.
function wordsOf ({ exit_status: code, problem, message }) {
  if (problem === 'cancelled') return { stopped: true }
  return { error: code === null ? message : '' }
}

// tried reports whether a dry run looked: with exit code 1 it refuses some, and would do the others.
const tried = result => result?.code === 0 || result?.code === 1

export function CommandDialog ({ title, text, fields = [], steps, close }) {
  const [values, setValues] = useState({})
  const [results, setResults] = useState({}) // of each step, for the values that are there now
  const stopNow = useRef(null)
  const running = Object.values(results).some(r => r.running)
  const set = (flag, value) => { setValues({ ...values, [flag]: value }); setResults({}) }
  const start = (i, argv) => {
    const tell = more => setResults(was => ({ ...was, [i]: { ...was[i], ...more } }))
    setResults(was => ({ ...was, [i]: { running: true, out: '' } }))
    const { ended, stop } = run(argv, out => setResults(was => ({ ...was, [i]: { ...was[i], out: was[i].out + out } })))
    stopNow.current = stop
    ended.then(
      () => tell({ running: false, code: 0 }),
      error => tell({ running: false, code: error.exit_status ?? -1, ...wordsOf(error) }))
  }
  return (
    <Modal isOpen variant="medium" aria-labelledby="action-title" onClose={() => { if (!running) close() }}>
      <ModalHeader title={title} labelId="action-title" description={text} />
      <ModalBody tabIndex={0} aria-label="Commands">
        {fields.length > 0 &&
          <Form onSubmit={event => event.preventDefault()}>
            {fields.map(field => <Field key={field.flag} {...field} value={values[field.flag]} set={set} off={running} />)}
          </Form>}
        <ol className="hp-steps">
          {steps(values).map((step, i) =>
            <Step key={i} {...step} result={results[i]} off={running || (step.after !== undefined && !tried(results[step.after]))}
              start={() => start(i, step.argv)} />)}
        </ol>
      </ModalBody>
      <ModalFooter>
        {running && <Button variant="secondary" onClick={() => stopNow.current()}>Stop</Button>}
        <Button variant="link" isDisabled={running} onClick={close}>Close</Button>
      </ModalFooter>
    </Modal>
  )
}

function Field ({ flag, label, toggle, value, set, off }) {
  const id = `field${flag}`
  if (toggle) {
    return <Checkbox id={id} label={label} isChecked={!!value} isDisabled={off} onChange={(_, is) => set(flag, is)} />
  }
  return (
    <FormGroup label={label} fieldId={id}>
      <TextInput id={id} value={value ?? ''} isDisabled={off} onChange={(_, is) => set(flag, is.trim())} />
    </FormGroup>
  )
}

function Step ({ text, argv, danger, result, off, start }) {
  const line = command(argv)
  const item = useRef(null)
  useEffect(() => { if (result) item.current.scrollIntoView({ block: 'nearest' }) }, [result])
  return (
    <li ref={item}>
      {text && <p>{text}</p>}
      <div className="hp-command">
        <code>{line}</code>
        <Button variant={danger ? 'danger' : 'primary'} size="sm" isDisabled={off} isLoading={result?.running}
          aria-label={`Run ${line}`} onClick={start}>Run</Button>
      </div>
      <div aria-live="polite">
        {(result?.out || result?.error) && <pre className="hp-output" tabIndex={0}>{result.out}{result.error}</pre>}
        {result && !result.running && <p>{result.stopped ? 'Stopped.' : result.code === 0 ? 'Done.' : `Exit code ${result.code}.`}</p>}
      </div>
    </li>
  )
}
