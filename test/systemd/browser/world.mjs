// What the story of the page for Cockpit acts on: an administrator's session, its frame, and the
// booted Debian beneath.
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { inside, launch, Session } from './session.mjs'

const PICTURES = process.env.PICTURES
mkdirSync(PICTURES, { recursive: true })
const browser = await launch()
const began = Date.now()
const sessions = []

export const open = async options => {
  sessions.push(await Session.open(browser, options))
  return sessions.at(-1)
}
export const admin = await open()
export let frame // the administrator's page

// see waits for the administrator's page, also for one that was loaded again.
export const see = async () => { frame = await admin.frame() }
export const reload = async () => { await admin.page.reload(); await see() }

export const picture = (session, name) => session.page.screenshot({ path: `${PICTURES}/cockpit-${name}.png` })

export async function step (what, run) {
  const from = Date.now()
  const figure = await run().catch(async error => {
    for (const one of sessions.filter(s => !s.page.isClosed())) {
      await picture(one, 'failed')
      console.error(`${one.page.url()}\n${one.complaints.join('\n')}`)
    }
    throw error
  })
  console.log(`         ${what}: held, ${((Date.now() - from) / 1000).toFixed(1)} s${figure ? `; ${figure}` : ''}`)
}

// within is how many ms it took until a locator is visible, which may be as many at most.
export async function within (locator, most) {
  const from = Date.now()
  await locator.waitFor({ timeout: most })
  return Date.now() - from
}

// end reports what was complained of in any session, and is the exit code.
export async function end () {
  const wrong = sessions.flatMap(s => s.complaints)
  console.log(`         chromium: ${((Date.now() - began) / 1000).toFixed(0)} s`)
  for (const line of wrong) console.error(line)
  await browser.close()
  return wrong.length ? 1 : 0
}

export const pool = (name = 'fast') => frame.locator(`[data-pool="${name}"]`)
export const section = name =>
  frame.getByRole('navigation', { name: 'Sections' }).getByRole('link', { name, exact: true }).click()
export const row = name => frame.getByRole('row').filter({ hasText: name })
export const volumeOf = claim => inside(`kubectl get pvc ${claim} -o jsonpath='{.spec.volumeName}'`)

// visit opens a volume's page from the table, as people do.
export async function visit (volume) {
  await section('Volumes')
  await frame.getByLabel('Filter volumes').fill(volume)
  await frame.getByRole('link', { name: volume, exact: true }).first().click()
  await frame.getByRole('heading', { name: volume, level: 1 }).waitFor()
}

// act opens the dialog of an action and runs its command.
export async function act (button, command, said, { before = () => {}, of = 'fast' } = {}) {
  await pool(of).getByRole('button', { name: button }).click()
  const dialog = frame.getByRole('dialog')
  await before(dialog)
  await runs(dialog, command, said)
  return dialog
}

// runs runs the nth step of a dialog that has this command, and waits until it has ended.
export async function runs (dialog, command, said, nth = 0) {
  const item = dialog.locator(`li:has(button[aria-label=${JSON.stringify(`Run ${command}`)}])`).nth(nth)
  await button(item, command).click()
  await item.getByText(said).first().waitFor()
  await item.getByText(/^(Done\.|Exit code )/).waitFor()
}

export const button = (where, command) => where.getByRole('button', { name: `Run ${command}`, exact: true })

export async function close (dialog) {
  await dialog.getByRole('button', { name: 'Close' }).last().click()
  await dialog.waitFor({ state: 'detached' })
}

// claim asks for one, with more of its spec.
export const claim = (name, { more = '', of = 'fast' } = {}) => inside(`kubectl apply -f - <<'END'
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: ${name}, namespace: default},
 spec: {accessModes: [ReadWriteOnce], storageClassName: ${of}, resources: {requests: {storage: 8Mi}}${more}}}
END`)

// configure replaces a file of the configuration, "" removes it, and starts the daemon again.
export const configure = (file, text) => inside(`cd /etc/hostpath-provisioner/conf.d; rm -f ${file}.toml
  ${text && `cat >${file}.toml <<'END'\n${text}\nEND`}
  systemctl daemon-reload; systemctl restart hostpath-provisioner`)

// unmount tries again where the daemon looks into the pool at the moment.
export const unmount = () => inside('for i in $(seq 100); do umount /srv/fast && break; sleep 0.05; done; ! mountpoint -q /srv/fast')

// narrow wants that nothing is wider than the frame, also on a telephone.
export async function narrow (what) {
  const before = admin.page.viewportSize()
  for (const width of [before.width, 480]) {
    await admin.page.setViewportSize({ ...before, width })
    const [wide, has] = await frame.locator('html').evaluate(html => [html.scrollWidth, html.clientWidth])
    assert.ok(wide <= has, `${what} is ${wide} pixels wide in ${has}`)
  }
  await admin.page.setViewportSize(before)
}

// tab presses Tab until what has the focus is this, by its role and name.
export async function tab (role, name) {
  const wanted = frame.getByRole(role, { name, exact: true })
  for (let i = 0; i < 80; i++) {
    await admin.page.keyboard.press('Tab')
    if (await wanted.evaluateAll(all => all.some(one => one === one.ownerDocument.activeElement &&
      one.ownerDocument.hasFocus()))) return
  }
  throw new Error(`the keyboard does not reach the ${role} ${name}`)
}

export const press = key => admin.page.keyboard.press(key)
export { inside }
