// A disk that came from another node: this host becomes node-b, which has never seen it.
import assert from 'node:assert/strict'
import { act, admin, claim, close, configure, frame, inside, picture, pool, row, runs, section, step, volumeOf, within } from './world.mjs'

const become = node => {
  inside(`kubectl apply -f - <<'END'
{apiVersion: v1, kind: Node, metadata: {name: ${node}, labels: {kubernetes.io/hostname: ${node}}}}
END
    kubectl patch node node-a --subresource=status -p '{"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}'
    systemctl stop hostpath-provisioner; rm -rf /var/lib/hostpath-provisioner/state/pools /var/lib/hostpath-provisioner/state/token
    rm /etc/hostpath-provisioner/kubeconfig
    echo 'node = "${node}"' >/etc/hostpath-provisioner/conf.d/node.toml
    hostpath-provisioner enroll --admin-kubeconfig /root/.kube/config`) // a credential is of one node
  configure('node', `node = "${node}"`)
}

await step('the volumes on a moved disk are imported: dry first, then done', async () => {
  claim('travels', { of: 'second' })
  inside("kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=60s pvc/travels")
  const volume = volumeOf('travels')
  inside(`echo mine >/srv/second/${volume}/data`)
  become('node-b')
  await section('Pools')
  await frame.getByRole('heading', { name: 'node-b', level: 1 }).waitFor()
  const second = pool('second')
  await second.getByText('OtherNode').waitFor()
  const node = `kubectl get pv ${volume} -o jsonpath='{.metadata.labels.hostpath-provisioner/node}'`
  const command = 'hostpath-provisioner import second --from-node=node-a'
  const dialog = await act('Import', `${command} --dry-run`, /the daemon of node node-a wrote lease .*, less than 1m0s ago/, {
    of: 'second', before: dialog => dialog.getByLabel(/^The disk was/).fill('node-a'),
  })
  // A minute after the last that node-a wrote.
  inside(`for n in $(seq 20); do ${command} --dry-run && exit; sleep 5; done; ${command} --dry-run`)
  await runs(dialog, `${command} --dry-run`, '1 would be moved')
  assert.equal(inside(node), 'node-a', 'a dry run changes nothing')
  await admin.axe('a dry run')
  await picture(admin, 'import')
  await runs(dialog, command, '1 moved')
  await close(dialog)
  const opened = await within(second.getByText('open', { exact: true }), 15000) // the daemon looks every 10 s
  assert.equal(inside(node), 'node-b')
  assert.equal(inside(`cat /srv/second/${volume}/data`), 'mine')
  inside("kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=60s pvc/travels")
  await section('Volumes')
  await row('travels').getByText('bound').waitFor()
  return `open ${opened} ms later`
})
