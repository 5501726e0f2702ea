// Reads the page for Cockpit as people do: what it shows of a pool that is unmounted, of claims, of
// hostile names, of a daemon that is stopped; and its actions. It exits with 1 at the first thing
// that does not hold.
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { inside, launch, Session } from './session.mjs'

const PICTURES = process.env.PICTURES
mkdirSync(PICTURES, { recursive: true })
const browser = await launch()
const began = Date.now()

async function step (what, run) {
  const from = Date.now()
  const figure = await run().catch(async error => {
    for (const one of sessions) {
      await picture(one, 'failed')
      console.error(`${one.page.url()}\n${one.complaints.join('\n')}`)
    }
    throw error
  })
  console.log(`         ${what}: held, ${((Date.now() - from) / 1000).toFixed(1)} s${figure ? `; ${figure}` : ''}`)
}

// within is how many ms it took until a locator is visible, which may be as many at most.
async function within (locator, most) {
  const from = Date.now()
  await locator.waitFor({ timeout: most })
  return Date.now() - from
}

const picture = (session, name) => session.page.screenshot({ path: `${PICTURES}/cockpit-${name}.png` })

const sessions = []
const open = async options => { sessions.push(await Session.open(browser, options)); return sessions.at(-1) }
const admin = await open()
let frame
const pool = { getByText: (...of) => fast().getByText(...of), getByRole: (...of) => fast().getByRole(...of) }
const fast = () => frame.locator('[data-pool=fast]')

await step('a wrong password', async () => {
  await admin.login('admin', 'of another host', 'any')
  await admin.page.locator('#login-error-message').filter({ hasText: 'Wrong user name or password' }).waitFor()
})

await step('an administrator sees an open pool with its room and its mount', async () => {
  await admin.login('admin', 'of the host', 'any')
  frame = await admin.frame()
  await pool.getByText('open', { exact: true }).waitFor()
  await pool.getByRole('img', { name: /^Room in pool fast: Used .*, Promised 0 B, Free for a volume .* MiB, Reserve/ }).waitFor()
  await pool.getByRole('img', { name: /Device: \/dev\/loop.* \(ext4\); Marker: [A-Z0-9]{26}; Mount point: \/srv\/fast; Beneath: \/srv\/fast: immutable/ }).waitFor()
  await frame.getByText('service: active').waitFor()
  await frame.getByText('API: connected').waitFor()
  await admin.axe('the overview')
  await picture(admin, 'overview')
})

// unmount tries again where the daemon looks into the pool at the moment.
const unmount = () => inside('for i in $(seq 100); do umount /srv/fast && break; sleep 0.05; done; ! mountpoint -q /srv/fast')

await step('an unmounted pool turns within 3 s, and back', async () => {
  unmount()
  const down = await within(pool.getByText('closed', { exact: true }), 3000)
  await pool.getByText('NotMounted').waitFor()
  await pool.getByText('Hint: mount it, then run: hostpath-provisioner check fast').waitFor()
  await pool.getByRole('img', { name: /Device: not mounted; .*Beneath: \/srv\/fast: immutable; It lies on: / }).waitFor()
  await admin.axe('a closed pool')
  await picture(admin, 'closed')
  inside('mount /srv/fast')
  const up = await within(pool.getByText('open', { exact: true }), 3000)
  return `closed after ${down} ms, open after ${up} ms`
})

await step('cordon and uncordon by the keyboard, with their command', async () => {
  await pool.getByRole('button', { name: 'Check now' }).focus()
  await admin.page.keyboard.press('Tab')
  await admin.page.keyboard.press('Enter')
  const dialog = frame.getByRole('dialog', { name: 'Take no new volumes in fast' })
  await dialog.getByText('hostpath-provisioner pool cordon fast', { exact: true }).waitFor()
  assert.equal(inside('ls /var/lib/hostpath-provisioner/state | grep -c cordoned', true), '0', 'nothing is run before it is asked for')
  await admin.axe('a dialog')
  await picture(admin, 'cordon')
  await dialog.getByRole('button', { name: 'Run hostpath-provisioner pool cordon fast' }).focus()
  await admin.page.keyboard.press('Enter')
  await dialog.getByText('Done.').waitFor()
  await dialog.getByText('pool fast cordoned').waitFor()
  await admin.page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
  await within(pool.getByText('cordoned', { exact: true }), 3000)
  inside('test -e /var/lib/hostpath-provisioner/state/cordoned-fast')
  await close(await act('Uncordon', 'hostpath-provisioner pool uncordon fast', 'pool fast uncordoned'))
  await within(pool.getByText('open', { exact: true }), 3000)
})

// act opens the dialog of an action and runs its command.
async function act (button, command, said, before = () => {}) {
  await pool.getByRole('button', { name: button }).click()
  const dialog = frame.getByRole('dialog')
  await before(dialog)
  await dialog.getByRole('button', { name: `Run ${command}`, exact: true }).first().click()
  await dialog.getByText(said).first().waitFor()
  await dialog.getByText(/^(Done\.|Exit code )/).first().waitFor()
  return dialog
}

const section = name => frame.getByRole('navigation', { name: 'Sections' }).getByRole('link', { name, exact: true }).click()
const row = name => frame.getByRole('row').filter({ hasText: name })

// claim asks for one, with more of its spec.
const claim = (name, more = '') => inside(`kubectl apply -f - <<'END'
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: ${name}, namespace: default},
 spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 8Mi}}${more}}}
END`)

await step('a claim becomes a row of the table, and its clone tells its source', async () => {
  await section('Volumes')
  await frame.getByText('There are no volumes.').waitFor()
  claim('data')
  const after = await within(row('data'), 15000)
  await row('data').getByText('bound').waitFor()
  claim('clone', ', dataSource: {kind: PersistentVolumeClaim, name: data}')
  const volume = inside("kubectl get pvc data -o jsonpath='{.spec.volumeName}'")
  await row('clone').getByText(volume, { exact: true }).waitFor()
  await admin.axe('the volumes')
  await picture(admin, 'volumes')
  return `shown after ${after} ms`
})

await step('a volume tells what is recorded, its copies, and its journal as it comes', async () => {
  const volume = inside("kubectl get pvc data -o jsonpath='{.spec.volumeName}'")
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
  await admin.page.reload()
  frame = await admin.frame()
  await frame.getByRole('log').getByText('ProvisioningSucceeded').first().waitFor()
  assert.equal(await frame.getByText('The journal is not followed').count(), 0)
  return `a line after ${live} ms`
})

const MARKUP = '<img src=x onerror=alert(1)>'
const LEFTWARDS = '\u202edoc.exe \u05e9\u05dc\u05d5\u05dd'
const LONG = 'a'.repeat(63) // a pool's name, at most
const LONGEST = `${'b'.repeat(120)}.${'c'.repeat(132)}` // a claim's, at most: 253 characters

await step('hostile names are text, and 253 characters fit', async () => {
  inside(`mkdir '/srv/fast/${MARKUP}' '/srv/fast/${LEFTWARDS}' '/srv/fast/${'d'.repeat(255)}'
    cat >/etc/hostpath-provisioner/conf.d/hostile.toml <<'END'
[pool.${LONG}]
path = "/srv/${MARKUP}${LEFTWARDS}"
require_mount = false
END
    systemctl daemon-reload; hostpath-provisioner prepare ${LONG}; systemctl restart hostpath-provisioner`)
  claim(LONGEST)
  await section('Volumes')
  await row(LONGEST).getByText('bound').waitFor({ timeout: 30000 })
  for (const name of [MARKUP, LEFTWARDS, 'd'.repeat(255)]) {
    await frame.getByLabel('Filter volumes').fill(name)
    await frame.getByRole('link', { name, exact: true }).click({ timeout: 15000 })
    await frame.getByRole('heading', { level: 1 }).filter({ hasText: name }).waitFor()
    assert.equal(await frame.getByRole('heading', { level: 1 }).textContent(), name)
    assert.equal(await frame.locator('img[src=x]').count(), 0, 'it is markup')
    await admin.axe('a hostile name')
    await section('Volumes')
  }
  await narrow('the table')
  await section('Pools')
  await frame.locator(`[data-pool=${LONG}]`).getByText(`${MARKUP}`).first().waitFor({ state: 'attached' })
  await narrow('the overview')
  await admin.axe('a hostile pool')
  inside(`rm /etc/hostpath-provisioner/conf.d/hostile.toml; systemctl restart hostpath-provisioner
    rmdir /srv/fast/'<'* /srv/fast/ddd* '/srv/fast/${LEFTWARDS}'`)
  await frame.locator(`[data-pool=${LONG}]`).waitFor({ state: 'detached' })
})

// narrow wants that nothing is wider than the frame.
async function narrow (what) {
  const [wide, has] = await frame.locator('html').evaluate(html => [html.scrollWidth, html.clientWidth])
  assert.ok(wide <= has, `${what} is ${wide} pixels wide in ${has}`)
}

await step('5,000 volumes are sorted, filtered and turned over at once', async () => {
  inside('cd /srv/fast; seq -f dir-%04.0f 5000 | xargs mkdir')
  await section('Volumes')
  claim('late') // which has the volumes listed
  await frame.getByRole('button', { name: /of 50\d\d$/ }).waitFor({ timeout: 30000 })
  const figures = []
  const timed = async (what, act, shows) => {
    const from = Date.now()
    await act()
    await shows.waitFor()
    figures.push(`${what} ${Date.now() - from} ms`)
    assert.ok(Date.now() - from < 5000, // on a busy machine
      `${what} took ${Date.now() - from} ms`)
  }
  const sort = frame.getByRole('columnheader', { name: 'Volume' }).getByRole('button')
  await timed('sorted', () => sort.click(), row('pvc-').first())
  await timed('back', () => sort.click(), row('dir-0001'))
  await timed('next page', () => frame.getByRole('button', { name: /next page/i }).first().click(), row('dir-0051'))
  await timed('filtered', () => frame.getByLabel('Filter volumes').fill('dir-4321'), row('dir-4321'))
  assert.equal(await frame.getByRole('row').count(), 2)
  inside('cd /srv/fast; rmdir dir-*')
  return figures.join(', ')
})

await step('check, prepare, adopt and import: the command first, and a dry run before it is done', async () => {
  await section('Pools')
  await close(await act('Check now', 'hostpath-provisioner check fast', /fast +\/srv\/fast +open/))
  await close(await act('Prepare', 'hostpath-provisioner prepare fast', 'pool fast: nothing had to be done'))
  unmount()
  const prepares = await act('Prepare', 'mount /srv/fast', 'Done.')
  inside('mountpoint -q /srv/fast')
  await prepares.getByRole('button', { name: 'Run hostpath-provisioner check fast' }).click()
  await prepares.getByText(/fast +\/srv\/fast +open/).waitFor()
  await close(prepares)
  await pool.getByText('open', { exact: true }).waitFor()
  const adopts = await act('Adopt', 'hostpath-provisioner adopt fast --dry-run', '0 would be adopted', async dialog => {
    assert.ok(await dialog.getByRole('button', { name: 'Run hostpath-provisioner adopt fast', exact: true }).isDisabled(), 'no dry run yet')
    await picture(admin, 'adopt')
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
  await imports.getByText('0 would be moved').waitFor()
  await close(imports)
})

async function close (dialog) {
  await dialog.getByRole('button', { name: 'Close' }).last().click()
  await dialog.waitFor({ state: 'detached' })
}

await step('a daemon that is stopped is told, and one that starts', async () => {
  inside('systemctl stop hostpath-provisioner')
  const stopped = await within(frame.getByText('There is no status (hostpath-provisioner.service: inactive)'), 3000)
  await frame.getByText('the daemon is not running').waitFor()
  await admin.axe('a stopped daemon')
  inside('systemctl start hostpath-provisioner')
  const started = await within(pool.getByText('open', { exact: true }), 5000)
  inside('kill -9 $(systemctl show -P MainPID hostpath-provisioner)')
  inside('systemctl is-active --wait hostpath-provisioner', true)
  await within(frame.getByText(/service: (active|activating)/), 5000)
  inside('systemctl stop hostpath-provisioner; rm -r /run/hostpath-provisioner') // as before its first start
  await admin.page.reload()
  frame = await admin.frame()
  await frame.getByText('/run/hostpath-provisioner has no status.json').waitFor()
  inside('systemctl start hostpath-provisioner')
  await within(pool.getByText('open', { exact: true }), 10000)
  return `stopped after ${stopped} ms, started after ${started} ms`
})

await step('the JSON of another schema is not read', async () => {
  inside(`printf '%s\n' '#!/bin/sh' 'exec /usr/bin/hostpath-provisioner "$@" | sed "s/\\"schema\\": 1/\\"schema\\": 2/"' >/usr/local/bin/hostpath-provisioner
    chmod +x /usr/local/bin/hostpath-provisioner`)
  await admin.page.reload()
  frame = await admin.frame()
  await frame.getByText('has schema 2, and this page reads 1').waitFor()
  assert.equal(await frame.locator('[data-pool]').count(), 0)
  inside('rm /usr/local/bin/hostpath-provisioner')
  await admin.page.reload()
  frame = await admin.frame()
  await pool.getByText('open', { exact: true }).waitFor()
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

await step('a user without privilege sees the pools, and can do nothing', async () => {
  const guest = await open()
  await guest.login('guest', 'of nothing', 'none')
  const seen = await guest.frame()
  await seen.locator('[data-pool=fast]').getByText('open', { exact: true }).waitFor()
  await seen.getByText('Actions and volumes need administrative access').waitFor()
  for (const button of await seen.locator('.hp-actions button').all()) assert.ok(await button.isDisabled())
  assert.equal(await seen.locator('.hp-actions button').count(), 5)
  await seen.getByRole('link', { name: 'Volumes', exact: true }).click()
  await seen.getByText('was not listed', { exact: false }).or(seen.getByText('were not listed')).or(seen.getByText(/permission denied/)).first().waitFor()
  await guest.axe('a guest')
  await picture(guest, 'guest')
})

const wrong = sessions.flatMap(s => s.complaints)
console.log(`         chromium: ${((Date.now() - began) / 1000).toFixed(0)} s`)
for (const line of wrong) console.error(line)
await browser.close()
process.exit(wrong.length ? 1 : 0)
