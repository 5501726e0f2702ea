// The table of volumes, and a volume's page.
import assert from 'node:assert/strict'
import { admin, claim, frame, inside, picture, reload, row, section, step, visit, volumeOf, within } from './world.mjs'

await step('a claim becomes a row of the table, and its clone tells its source', async () => {
  await section('Volumes')
  await frame.getByText('There are no volumes.').waitFor()
  claim('data')
  const after = await within(row('data'), 15000)
  await row('data').getByText('bound').waitFor()
  claim('clone', { more: ', dataSource: {kind: PersistentVolumeClaim, name: data}' })
  const volume = volumeOf('data')
  await row('clone').getByText(volume, { exact: true }).waitFor()
  await admin.axe('the volumes')
  await picture(admin, 'volumes')
  return `shown after ${after} ms`
})

await step('a volume tells what is recorded, its copies, and its journal as it comes', async () => {
  const volume = volumeOf('data')
  await row('data').getByRole('link', { name: volume }).first().click()
  await frame.getByRole('heading', { name: volume }).waitFor()
  await frame.getByText('default/data', { exact: true }).waitFor()
  await frame.getByRole('listitem').filter({ hasText: /^pvc-.*, volume, bound$/ }).waitFor()
  const log = frame.getByRole('log')
  await log.getByText('ProvisioningSucceeded').first().waitFor()
  await log.getByText('made for').or(log.getByText('data')).first().waitFor()
  inside(`printf '%s\n' 'MESSAGE=<img src=x onerror=alert(2)> comes now' HOSTPATH_VOLUME=${volume} | logger --journald`)
  const live = await within(log.getByText('<img src=x onerror=alert(2)> comes now'), 3000)
  inside('kill $(pidof journalctl)')
  inside(`printf '%s\\n' 'MESSAGE=once more' HOSTPATH_VOLUME=${volume} | logger --journald`)
  await log.getByText('once more').waitFor()
  assert.equal(await log.getByText('comes now').count(), 1, 'what was shown is not shown again')
  await admin.axe('a volume')
  await picture(admin, 'volume')
  await reload()
  await frame.getByRole('log').getByText('ProvisioningSucceeded').first().waitFor()
  assert.equal(await frame.getByText('The journal is not followed').count(), 0)
  return `a line after ${live} ms`
})

const events = () => frame.getByRole('list', { name: 'Events' })

// happens makes an event of a claim, as any controller may.
const happens = (claim, name, message) => inside(`kubectl apply -f - <<END
{apiVersion: v1, kind: Event, metadata: {name: ${name}, namespace: default}, type: Warning, reason: Odd, count: 31,
 message: ${JSON.stringify(message)}, lastTimestamp: "$(date -u +%FT%TZ)", involvedObject:
 {kind: PersistentVolumeClaim, namespace: default, name: ${claim}, uid: $(kubectl get pvc ${claim} -o jsonpath={.metadata.uid})}}
END`)

await step('events of a claim and its volume, with the rights of an administrator alone', async () => {
  const volume = volumeOf('data')
  await frame.getByText('hostpath-provisioner why pvc/data --namespace=default --json', { exact: true }).waitFor()
  await events().getByText('ProvisioningSucceeded').waitFor()
  await frame.getByText(/^claim default\/data: Bound, .*; it waits for nothing$/).waitFor()
  await frame.getByText(new RegExp(`^volume ${volume}: Bound, .* of node node-a; it waits for nothing$`)).waitFor()
  happens('data', 'odd', '<img src=x onerror=alert(3)> is odd')
  inside(`printf '%s\\n' 'MESSAGE=news' HOSTPATH_VOLUME=${volume} | logger --journald`)
  const after = await within(events().getByText('<img src=x onerror=alert(3)> is odd'), 25000)
  await events().getByText('Odd', { exact: true }).waitFor()
  await events().getByText('(31 times)').waitFor()
  await admin.axe('events')
  await picture(admin, 'events')
  inside('mv /root/.kube/config /root/elsewhere')
  try {
    await reload()
    await frame.getByText('The events were not read').waitFor()
    await frame.getByText('/root/.kube/config": no such file or directory', { exact: false }).waitFor()
    await admin.axe('events that were not read')
    const file = frame.getByLabel('Kubeconfig of an administrator, a file of this host')
    await file.fill('/etc/hostpath-provisioner/kubeconfig') // the node's own
    await frame.getByRole('button', { name: 'Read events' }).click()
    await frame.getByText('events: this user may not read them').waitFor()
    await frame.getByText(/^claim default\/data: Bound/).waitFor()
    assert.equal(await events().getByRole('listitem').count(), 0)
    await file.fill('/root/elsewhere')
    await file.press('Enter')
    await frame.getByText('--kubeconfig=/root/elsewhere --json', { exact: false }).waitFor()
    await events().getByText('ProvisioningSucceeded').waitFor()
  } finally { inside('mv /root/elsewhere /root/.kube/config') }
  return `a new one after ${after} ms`
})

await step('a snapshot is one of its volume', async () => {
  const volume = volumeOf('data')
  inside(`kubectl apply -f - <<'END'
{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {name: before, namespace: default}, spec: {}}
END
    kubectl apply -f - <<END
{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotContent, metadata: {name: before}, spec: {
  driver: hostpath-provisioner, deletionPolicy: Delete, volumeSnapshotClassName: hostpath-provisioner,
  source: {volumeHandle: ${volume}}, volumeSnapshotRef: {namespace: default, name: before,
  uid: $(kubectl get volumesnapshots.snapshot.storage.k8s.io before -o jsonpath={.metadata.uid})}}}
END`)
  await reload()
  const copy = frame.getByRole('listitem').filter({ hasText: /, snapshot, / })
  await copy.waitFor()
  const handle = inside("kubectl get volumesnapshotcontents.snapshot.storage.k8s.io before -o jsonpath='{.status.snapshotHandle}'")
  await copy.getByRole('link', { name: handle, exact: true }).click()
  await frame.getByRole('heading', { name: handle, level: 1 }).waitFor()
  await frame.getByText('default/before', { exact: true }).waitFor()
  await frame.getByText(volume, { exact: true }).waitFor() // what it was copied from
  await admin.axe('a snapshot')
  await section('Volumes')
  await row(handle).getByText('snapshot', { exact: false }).first().waitFor()
})
