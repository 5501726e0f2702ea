// Reads a built site as a person does, in Debian's chromium: every page in both colour schemes, its
// links, anchors and pictures, and the search. Nothing may be asked of another host than this one,
// and no page may complain. browser.mjs SITE VERSION
import { createServer } from 'node:http'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { extname, join, resolve } from 'node:path'
import { chromium } from 'playwright-core'

const [root, version] = [resolve(process.argv[2]), process.argv[3]]
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' }
const server = createServer((request, response) => {
  const path = decodeURI(new URL(request.url, 'http://site').pathname)
  const file = join(root, path.endsWith('/') ? `${path}index.html` : path)
  const found = file.startsWith(root) && existsSync(file)
  response.writeHead(found ? 200 : 404, { 'content-type': types[extname(file)] ?? 'application/octet-stream' })
  response.end(found ? readFileSync(file) : '')
})
await new Promise(listening => server.listen(0, '127.0.0.1', listening))
const site = `http://127.0.0.1:${server.address().port}`
const names = readdirSync(root, { recursive: true }).filter(name => name.endsWith('.html') && name !== '404.html')

const wrong = new Set()
const pages = new Map() // the path of each page: its links, and what they can lead to
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] })
for (const colorScheme of ['light', 'dark']) {
  const context = await browser.newContext({ colorScheme })
  await context.route('**', (route, request) => {
    if (request.url().startsWith(`${site}/`) || request.url().startsWith('data:')) return route.continue()
    wrong.add(`asks for ${request.url()}`)
    return route.abort()
  })
  const page = await context.newPage()
  page.on('console', said => said.type() === 'error' && wrong.add(`${page.url()}: ${said.text()}`))
  page.on('pageerror', error => wrong.add(`${page.url()}: ${error}`))
  for (const name of names) await read(page, `/${name}`, colorScheme)
  if (colorScheme === 'light') await search(page)
  await context.close()
}
await browser.close()
server.close()
let links = 0
for (const [name, { hrefs }] of pages) for (const href of hrefs) follow(name, href)
if (pages.size < 20 || links < 500) wrong.add(`only ${pages.size} pages with ${links} links`)
for (const line of wrong) console.error(line)
console.log(`chromium: ${pages.size} pages in light and dark, ${links} links, search; ${wrong.size} wrong`)
process.exit(wrong.size ? 1 : 0)

async function read(page, name, colorScheme) {
  await page.goto(site + name, { waitUntil: 'networkidle' })
  const seen = await page.evaluate(async () => {
    const images = [...document.images]
    for (const image of images) image.loading = 'eager'
    await Promise.all(images.map(image => image.decode().catch(() => {})))
    return {
      text: document.body.innerText,
      ids: [...document.querySelectorAll('[id]')].map(e => e.id),
      hrefs: [...document.querySelectorAll('a[href]')].map(a => a.href),
      broken: images.filter(image => image.naturalWidth === 0).map(image => image.src),
      mute: images.filter(image => !image.alt).map(image => image.src),
      dark: getComputedStyle(document.body).backgroundColor,
    }
  })
  for (const image of seen.broken) wrong.add(`${name}: the picture ${image} is broken`)
  for (const image of seen.mute) wrong.add(`${name}: the picture ${image} has no words in its place`)
  if (!seen.text.includes(version)) wrong.add(`${name} does not show the version ${version}`)
  if (seen.dark === 'rgb(255, 255, 255)' && colorScheme === 'dark') wrong.add(`${name} is white in the dark`)
  pages.set(name, seen)
}

// search finds a word, and what it finds opens. It throws where it does not within 30 seconds.
async function search(page) {
  await page.goto(`${site}/index.html`)
  await page.click('.VPNavBarSearch button')
  await page.fill('.VPLocalSearchBox input', 'PoolCordoned')
  await page.waitForSelector('.VPLocalSearchBox .result')
  await page.click('.VPLocalSearchBox .result')
  await page.waitForURL(url => url.pathname.length > '/index.html'.length)
  await page.waitForFunction(() => document.querySelector('main')?.innerText.includes('PoolCordoned'))
}

function follow(name, href) {
  if (!href.startsWith(`${site}/`)) return
  links++
  const url = new URL(href)
  const path = url.pathname.endsWith('/') ? `${url.pathname}index.html` : url.pathname
  const to = pages.get(path)
  if (!to && !existsSync(join(root, path))) wrong.add(`${name}: ${path} is not there`)
  const anchor = decodeURIComponent(url.hash.slice(1))
  if (to && anchor && !to.ids.includes(anchor)) wrong.add(`${name}: ${path}#${anchor} has no heading`)
}
