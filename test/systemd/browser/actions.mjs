// The actions of a pool: each command is shown before it is run, and dry before it is done.
import assert from 'node:assert/strict'
import { act, admin, button, close, configure, frame, inside, picture, pool, row, runs, section, step, unmount, within } from './world.mjs'

await step('check, prepare, adopt and import: the command first, and a dry run before it is done', async () => {
  await section('Pools')
  await close(await act('Check now', 'hostpath-provisioner check fast', /fast +\/srv\/fast +open/))
  await close(await act('Prepare', 'hostpath-provisioner prepare fast', 'pool fast: nothing had to be done'))
  unmount()
  const prepares = await act('Prepare', 'mount /srv/fast', 'Done.')
  inside('mountpoint -q /srv/fast')
  await runs(prepares, 'hostpath-provisioner check fast', /fast +\/srv\/fast +open/)
  await close(prepares)
  await pool().getByText('open', { exact: true }).waitFor()
  const adopts = await act('Adopt', 'hostpath-provisioner adopt fast --dry-run', '0 would be adopted', {
    before: async dialog => assert.ok(await button(dialog, 'hostpath-provisioner adopt fast').isDisabled(), 'no dry run yet'),
  })
  await adopts.getByRole('button', { name: 'Run hostpath-provisioner adopt fast', exact: true }).click()
  await adopts.getByText('0 adopted', { exact: false }).waitFor()
  await adopts.getByLabel(/^CSI driver/).fill("it's; reboot")
  const quoted = "hostpath-provisioner adopt fast '--from-csi=it'\\''s; reboot'"
  await adopts.getByText(`${quoted} --dry-run`, { exact: true }).waitFor()
  assert.ok(await adopts.getByRole('button', { name: `Run ${quoted}`, exact: true }).isDisabled(), 'another command, and no dry run of it')
  await close(adopts)
  const imports = await act('Import', 'hostpath-provisioner import fast --dry-run', '--from-node: no node is named')
  assert.ok(await imports.getByRole('button', { name: 'Run hostpath-provisioner import fast', exact: true }).isDisabled(), 'the dry run failed')
  await imports.getByLabel(/^The disk was/).fill('node-a')
  await imports.getByRole('button', { name: 'Run hostpath-provisioner import fast --from-node=node-a --dry-run' }).click()
  await imports.getByText('0 would be moved, 0 left, 0 refused').waitFor() // its objects are this node's already
  await close(imports)
})

await step('a pool is prepared in steps, each of which is shown before any is run', async () => {
  inside(`truncate -s 256M /images/second; mkfs.ext4 -q /images/second
    echo '/images/second /srv/second ext4 loop,nofail,noauto' >>/etc/fstab`)
  configure('second', '[pool.second]\npath = "/srv/second"')
  const second = pool('second')
  await second.getByText('closed', { exact: true }).waitFor()
  await second.getByRole('button', { name: 'Prepare…' }).click()
  const dialog = frame.getByRole('dialog', { name: 'Prepare pool second' })
  const prepare = 'hostpath-provisioner prepare second'
  const shown = await dialog.locator('.hp-command code').allTextContents()
  assert.deepEqual(shown, [prepare, 'mount /srv/second', prepare, 'hostpath-provisioner check second'])
  inside('test ! -e /srv/second')
  await runs(dialog, prepare, 'immutable')
  inside('lsattr -d /srv/second | grep -q "^[^ ]*i"; ! mountpoint -q /srv/second')
  await runs(dialog, 'mount /srv/second', 'Done.')
  inside('mountpoint -q /srv/second; ! ls /srv/second/.hostpath-provisioner')
  await runs(dialog, prepare, 'wrote marker', 1)
  await runs(dialog, 'hostpath-provisioner check second', /second +\/srv\/second +open/)
  await admin.axe('a prepared pool')
  await picture(admin, 'prepare')
  await close(dialog)
  await within(second.getByText('open', { exact: true }), 15000) // the daemon looks every 10 s
  await second.getByRole('img', { name: /Marker: [A-Z0-9]{26}; Mount point: \/srv\/second; Beneath: \/srv\/second: immutable/ }).waitFor()
})

// made is a volume of rancher's provisioner in the pool, bound to a claim.
const made = name => inside(`kubectl apply -f - <<'END'
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local-path}, provisioner: rancher.io/local-path,
 volumeBindingMode: WaitForFirstConsumer}
END
  kubectl apply -f - <<'END'
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: ${name}, namespace: default},
 spec: {accessModes: [ReadWriteOnce], storageClassName: local-path, resources: {requests: {storage: 1Mi}}}}
END
  uid=$(kubectl get pvc ${name} -o jsonpath={.metadata.uid})
  mkdir /srv/fast/pvc-$uid; echo kept >/srv/fast/pvc-$uid/data
  kubectl apply -f - <<END
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pvc-$uid, annotations: {pv.kubernetes.io/provisioned-by: rancher.io/local-path}},
 spec: {accessModes: [ReadWriteOnce], storageClassName: local-path, capacity: {storage: 1Mi}, persistentVolumeReclaimPolicy: Delete,
  hostPath: {path: /srv/fast/pvc-$uid, type: DirectoryOrCreate}, claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: default, name: ${name}, uid: $uid},
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-a]}]}]}}}}
END
  kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=60s pvc/${name}; echo pvc-$uid`).split('\n').at(-1)

await step("another provisioner's volume is adopted: dry first, then done", async () => {
  configure('aliases', 'aliases = ["rancher.io/local-path"]')
  const volume = made('old')
  await pool().getByText('open', { exact: true }).waitFor()
  const label = `kubectl get pv ${volume} -o jsonpath='{.metadata.labels}'`
  const adopts = await act('Adopt', 'hostpath-provisioner adopt fast --dry-run', '1 would be adopted')
  assert.equal(inside(label), '', 'a dry run changes nothing')
  await picture(admin, 'adopt')
  await runs(adopts, 'hostpath-provisioner adopt fast', '1 adopted')
  assert.match(inside(label), /"hostpath-provisioner\/pool":"fast"/)
  await close(adopts)
  await section('Volumes')
  await row('old').getByText('bound').waitFor()
  assert.equal(inside(`cat /srv/fast/${volume}/data`), 'kept')
  await section('Pools')
})
