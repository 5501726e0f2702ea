// What happens while people look: another session, a right that goes and comes, a volume that is
// deleted, a status that is half written, a command that takes long.
import assert from 'node:assert/strict'
import { act, admin, claim, close, frame, inside, open, pool, reload, row, runs, section, step, visit, volumeOf, within } from './world.mjs'

claim('data') // where this chapter is read alone

await step('another session sees what this one does', async () => {
  const other = await open()
  await other.login('admin', 'of the host', 'any')
  const theirs = (await other.frame()).locator('[data-pool=fast]')
  await section('Pools')
  await close(await act('Cordon', 'hostpath-provisioner pool cordon fast', 'pool fast cordoned'))
  await within(theirs.getByText('cordoned', { exact: true }), 3000)
  await theirs.getByRole('button', { name: 'Uncordon' }).waitFor()
  await close(await act('Uncordon', 'hostpath-provisioner pool uncordon fast', 'pool fast uncordoned'))
  const after = await within(theirs.getByText('open', { exact: true }), 3000)
  await other.close()
  return `after ${after} ms`
})

await step('a volume that is deleted while its page is open', async () => {
  claim('brief')
  inside("kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=60s pvc/brief")
  const volume = volumeOf('brief')
  await section('Volumes')
  await row('brief').getByText('bound').waitFor()
  await visit(volume)
  await frame.getByText('default/brief', { exact: true }).waitFor()
  inside('kubectl delete pvc brief')
  await frame.getByText('Pool fast has no such volume any more').waitFor({ timeout: 30000 })
  await frame.getByRole('log').getByText('Deleted', { exact: true }).waitFor()
  await admin.axe('a volume that is gone')
  await section('Volumes')
  await row('brief').waitFor({ state: 'detached' })
})

await step('a status that is half written, and one that is whole again', async () => {
  await section('Pools')
  inside('cd /run/hostpath-provisioner; systemctl kill -s STOP hostpath-provisioner; head -c 300 status.json >half; cp half status.json')
  await within(frame.getByText('There is no status (hostpath-provisioner.service: active)'), 3000)
  await frame.getByText('unexpected end of JSON input').waitFor()
  await admin.axe('half of a status')
  inside('rm /run/hostpath-provisioner/half; systemctl kill -s CONT hostpath-provisioner')
  await within(pool().getByText('open', { exact: true }), 10000) // the daemon writes it every 5 s
})

await step('a dialog stays where the daemon stops, and a command that takes long is stopped', async () => {
  inside(`printf '%s\\n' '#!/bin/sh' '[ "$1" = check ] && { echo slow >&2; exec sleep 1234; }' 'exec /usr/bin/hostpath-provisioner "$@"' >/usr/local/bin/hostpath-provisioner
    chmod +x /usr/local/bin/hostpath-provisioner`)
  await pool().getByRole('button', { name: 'Check now' }).click()
  const dialog = frame.getByRole('dialog')
  await dialog.getByRole('button', { name: 'Run hostpath-provisioner check fast' }).click()
  await dialog.getByText('slow').waitFor()
  inside('systemctl stop hostpath-provisioner')
  await frame.getByText('There is no status (hostpath-provisioner.service: inactive)').waitFor()
  await dialog.getByText('slow').waitFor()
  await admin.axe('a command that runs')
  assert.ok(await dialog.getByRole('button', { name: 'Close' }).last().isDisabled(), 'it runs')
  await dialog.getByRole('button', { name: 'Stop' }).click()
  await dialog.getByText('Stopped.').waitFor()
  inside('for i in $(seq 50); do pgrep -fx "sleep 1234" >/dev/null || exit 0; sleep 0.1; done; exit 1')
  inside('rm /usr/local/bin/hostpath-provisioner; systemctl start hostpath-provisioner')
  await runs(dialog, 'hostpath-provisioner check fast', /fast +\/srv\/fast +open/)
  await close(dialog)
  await within(pool().getByText('open', { exact: true }), 10000)
})

// bridge calls what the shell's button for the user's rights calls. The shell loads the page again.
const bridge = method => frame.locator('html').evaluate((_, method) =>
  window.cockpit.dbus(null, { bus: 'internal' }).call('/superuser', 'cockpit.Superuser', ...method), method)

await step('a right that goes while the page is open, and comes back', async () => {
  const volume = volumeOf('data')
  await section('Pools')
  await bridge(['Stop', []])
  await frame.getByText('Actions and volumes need administrative access').waitFor()
  for (const button of await pool().locator('.hp-actions button').all()) assert.ok(await button.isDisabled())
  inside('systemctl stop hostpath-provisioner')
  await within(frame.getByText('There is no status (hostpath-provisioner.service: inactive)'), 3000)
  inside('systemctl start hostpath-provisioner')
  await within(pool().getByText('open', { exact: true }), 10000)
  await frame.locator('html').evaluate((_, path) => window.cockpit.location.go(path), ['volumes', 'fast', volume])
  await frame.getByText('The volumes were not listed').waitFor()
  await frame.getByText('permission denied').waitFor()
  await admin.page.getByRole('button', { name: 'Limited access' }).click()
  await admin.page.getByLabel(/^Password for admin/).fill('of the host')
  await admin.page.getByRole('button', { name: 'Authenticate' }).click()
  await frame.getByText('default/data', { exact: true }).waitFor()
  inside(`printf '%s\\n' 'MESSAGE=seen again' HOSTPATH_VOLUME=${volume} | logger --journald`)
  await frame.getByRole('log').getByText('seen again').waitFor()
  assert.equal(await frame.getByText('Actions and volumes need administrative access').count(), 0)
})

await step('volumes are listed without a daemon', async () => {
  inside('systemctl stop hostpath-provisioner; rm -r /run/hostpath-provisioner')
  await section('Volumes')
  await reload()
  await row('data').getByText('bound').waitFor()
  inside('systemctl start hostpath-provisioner')
  await section('Pools')
  await within(pool().getByText('open', { exact: true }), 10000)
})
