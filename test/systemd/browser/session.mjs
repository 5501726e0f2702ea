// A user's session with Cockpit in chromium: login, the page's frame, what is said on the console.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const COCKPIT = 'http://127.0.0.1:9090'
const INSIDE = JSON.parse(process.env.INSIDE)
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync']
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

// inside runs a script on the booted Debian, as root.
export function inside (script, mayFail) {
  const { status, stdout, stderr } = spawnSync(INSIDE[0], [...INSIDE.slice(1), script], { encoding: 'utf8' })
  if (status !== 0 && !mayFail) throw new Error(`${script}: exit code ${status}\n${stdout}${stderr}`)
  return stdout.trim()
}

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: FLAGS })

// Session is one user's. complaints are errors on the console, violations of the policy of contents
// among them, and requests of other hosts.
export class Session {
  static async open (browser, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1200, height: 640 }, ...options })
    const page = await context.newPage()
    const session = new Session(context, page)
    page.on('console', said => {
      if (/Content.Security.Policy|violates/i.test(said.text())) session.complaints.push(said.text())
      else if (said.type() === 'error' && /hostpath-provisioner/.test(said.location().url)) session.complaints.push(said.text())
    })
    page.on('pageerror', error => session.complaints.push(`${error}`))
    page.on('dialog', dialog => { session.complaints.push(`a dialog: ${dialog.message()}`); dialog.dismiss() })
    page.on('request', request => {
      if (!/^(data|blob|http:\/\/127\.0\.0\.1:9090|ws:\/\/127\.0\.0\.1:9090)/.test(request.url())) session.complaints.push(`asks for ${request.url()}`)
    })
    page.on('response', response => session.policy(response))
    return session
  }

  // policy wants Cockpit's own policy of contents for the page: its own scripts, and none inline.
  policy (response) {
    if (!/\/hostpath-provisioner\/index\.html$/.test(response.url()) || response.status() !== 200) return
    const policy = response.headers()['content-security-policy'] ?? ''
    const scripts = /script-src ([^;]*)/.exec(policy) ?? /default-src ([^;]*)/.exec(policy)
    if (!/'self'/.test(scripts?.[1]) || /unsafe/.test(scripts[1])) this.complaints.push(`the page has the policy ${policy}`)
    this.policies = (this.policies ?? 0) + 1
  }

  constructor (context, page) { Object.assign(this, { context, page, complaints: [] }) }

  // login sends a password. Cockpit is told to use the privileges of the user, as its shell does.
  async login (user, password, superuser) {
    await this.page.goto(`${COCKPIT}/hostpath-provisioner`)
    await this.page.evaluate(([key, value]) => localStorage.setItem(key, value), [`superuser:${user}`, superuser])
    await this.page.fill('#login-user-input', user)
    await this.page.fill('#login-password-input', password)
    await this.page.click('#login-button')
  }

  // frame is the page's, once it is there.
  async frame () {
    const frame = this.page.frameLocator('iframe[name="cockpit1:localhost/hostpath-provisioner"]')
    await frame.locator('main.hp-page').waitFor()
    if (!this.policies) throw new Error('no policy of contents was seen')
    return frame
  }

  // axe wants the frame without a violation of the rules for those who cannot see it.
  async axe (what) {
    const frame = this.page.frames().find(f => f.url().includes('/hostpath-provisioner/index.html'))
    await frame.evaluate(AXE)
    const { violations, passes } = await frame.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
    for (const v of violations) this.complaints.push(`axe, ${what}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 200)).join(' | ')}`)
    if (passes.length < 10) throw new Error(`axe looked at nothing: ${passes.length} rules`)
  }

  async close () { await this.context.close() }
}
