// A daemon that is stopped, or of another version; the dark; a user without privilege.
import assert from 'node:assert/strict'
import { admin, frame, inside, open, picture, pool, reload, section, step, visit, volumeOf, within } from './world.mjs'

await step('a daemon that is stopped is told, and one that starts', async () => {
  inside('systemctl stop hostpath-provisioner')
  const stopped = await within(frame.getByText('There is no status (hostpath-provisioner.service: inactive)'), 3000)
  await frame.getByText('the daemon is not running').waitFor()
  await admin.axe('a stopped daemon')
  inside('systemctl start hostpath-provisioner')
  const started = await within(pool().getByText('open', { exact: true }), 5000)
  inside('kill -9 $(systemctl show -P MainPID hostpath-provisioner)')
  inside('systemctl is-active --wait hostpath-provisioner', true)
  await within(frame.getByText(/service: (active|activating)/), 5000)
  inside('systemctl stop hostpath-provisioner; rm -r /run/hostpath-provisioner') // as before its first start
  await reload()
  await frame.getByText('/run/hostpath-provisioner has no status.json').waitFor()
  inside('systemctl start hostpath-provisioner')
  await within(pool().getByText('open', { exact: true }), 10000)
  return `stopped after ${stopped} ms, started after ${started} ms`
})

await step('the JSON of another schema is not read', async () => {
  inside(`printf '%s\n' '#!/bin/sh' 'exec /usr/bin/hostpath-provisioner "$@" | sed "s/\\"schema\\": 1/\\"schema\\": 2/"' >/usr/local/bin/hostpath-provisioner
    chmod +x /usr/local/bin/hostpath-provisioner`)
  await reload()
  await frame.getByText('has schema 2, and this page reads 1').waitFor()
  await frame.getByText('There is no status (hostpath-provisioner.service: active)').waitFor()
  assert.equal(await frame.getByText('To start the daemon').count(), 0, 'it runs')
  assert.equal(await frame.locator('[data-pool]').count(), 0)
  inside('rm /usr/local/bin/hostpath-provisioner')
  await reload()
  await pool().getByText('open', { exact: true }).waitFor()
})

await step('the dark, by the browser and by the shell', async () => {
  const html = frame.locator('html')
  await admin.page.emulateMedia({ colorScheme: 'dark' })
  await frame.locator('html.pf-v6-theme-dark').waitFor()
  await admin.axe('the overview in the dark')
  await picture(admin, 'dark')
  await html.evaluate(() => { localStorage.setItem('shell:style', 'light'); window.dispatchEvent(new CustomEvent('cockpit-style', { detail: { style: 'light' } })) })
  assert.ok(!/theme-dark/.test(await html.getAttribute('class') ?? ''), 'light was chosen')
  await html.evaluate(() => { localStorage.removeItem('shell:style'); window.dispatchEvent(new CustomEvent('cockpit-style', { detail: { style: 'auto' } })) })
  for (const name of ['Volumes', 'Pools']) {
    await section(name)
    await admin.axe(`${name} in the dark`)
  }
})

// asked are the times at which the page ran a command, by the first of its words.
const asked = about => inside('cat /run/asked').split('\n').map(line => line.split(/ (.*)/))
  .filter(([, args]) => args?.startsWith(about)).map(([at]) => Number(at))
const gaps = about => asked(about).slice(1).map((at, i) => at - asked(about)[i])

// busily has a status tell of something else four times a second, and the journal of a volume, until
// each of these commands was run so often; and returns the least time between the last two runs.
async function busily (volume, change, kinds, runs) {
  inside(`: >/run/asked; chmod 666 /run/asked; systemd-run --quiet --unit=busy sh -c 'cd /run/hostpath-provisioner; while sleep 0.25; do
    sed -i "${change.replaceAll('"', '\\"')}" status.json
    echo "MESSAGE=busy\nHOSTPATH_VOLUME=${volume}" | logger --journald; done'`)
  const ended = gap => gap > 9500 && gap < Infinity
  const least = about => Math.min(...gaps(about).slice(-runs))
  for (let i = 0; i < 70 && kinds.some(about => gaps(about).length < runs || !ended(least(about))); i++) await admin.page.waitForTimeout(1000)
  inside('systemctl stop busy')
  for (const about of kinds) assert.ok(ended(least(about)), `${about} is asked again after ${gaps(about)} ms`)
  return kinds.map(about => `${about} ${least(about)} ms`).join(', ')
}

await step('nothing is asked more often than every 10 seconds, whatever changes', async () => {
  const volume = volumeOf('data')
  inside(`printf '%s\n' '#!/bin/sh' 'echo "$(date +%s%3N) $*" >>/run/asked' 'exec /usr/bin/hostpath-provisioner "$@"' >/usr/local/bin/hostpath-provisioner
    chmod +x /usr/local/bin/hostpath-provisioner`)
  await visit(volume)
  await frame.getByRole('log').getByText('ProvisioningSucceeded').first().waitFor()
  const sizes = await busily(volume, 's/"used": [0-9]*/"used": $(date +%s%3N)/', ['status', 'volumes', 'why'], 2)
  // What people wait for is asked soon, and only so many times in a row.
  const states = await busily(volume, 's/"since": "[^"]*"/"since": "$(date +%FT%T.%NZ)"/', ['status', 'volumes'], 2)
  const [of, list] = [asked('status').length, asked('volumes').length]
  assert.ok(of > 5 && of < 35 && list > 4 && list < 15, `asked for the status ${of} times, for the volumes ${list} times`)
  inside('rm /usr/local/bin/hostpath-provisioner; systemctl restart hostpath-provisioner')
  await reload() // the page may ask as many times in a row again
  return `${sizes}; after ${of} and ${list} in a row ${states}`
})

await step('a user without privilege sees the pools, and can do nothing', async () => {
  const guest = await open()
  await guest.login('guest', 'of nothing', 'none')
  const seen = await guest.frame()
  await seen.locator('[data-pool=fast]').getByText('open', { exact: true }).waitFor()
  await seen.getByText('Actions and volumes need administrative access').waitFor()
  for (const button of await seen.locator('.hp-actions button').all()) assert.ok(await button.isDisabled())
  assert.equal(await seen.locator('[data-pool=fast] .hp-actions button').count(), 5)
  await seen.getByRole('link', { name: 'Volumes', exact: true }).click()
  await seen.getByText('was not listed', { exact: false }).or(seen.getByText('were not listed')).or(seen.getByText(/permission denied/)).first().waitFor()
  await guest.axe('a guest')
  await picture(guest, 'guest')
})
