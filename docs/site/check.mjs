// Checks a built site: each link leads to a page that there is, each anchor to its heading, each
// picture is there, each page has the version, and nothing is fetched from elsewhere.
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'

const [root, version] = process.argv.slice(2).map((arg, i) => (i ? arg : resolve(arg)))
const pages = readdirSync(root, { recursive: true }).filter(name => name.endsWith('.html'))
const text = new Map(pages.map(name => [name, readFileSync(join(root, name), 'utf8')]))
const wrong = []
let links = 0

const external = /^(?:https?:|mailto:)/
const attribute = (html, name) =>
  [...html.matchAll(new RegExp(`<(\\w+)[^>]*? ${name}="([^"]*)"`, 'g'))].map(m => [m[1], m[2]])

for (const [name, html] of text) {
  if (!html.includes(version)) wrong.push(`${name} has no version`)
  for (const [tag, target] of [...attribute(html, 'href'), ...attribute(html, 'src')]) {
    if (target.startsWith('data:')) continue
    if (external.test(target)) {
      if (tag !== 'a') wrong.push(`${name} fetches ${target}`)
      continue
    }
    links++
    const [path, anchor] = decodeURI(target).split('#')
    const file = path.startsWith('/') ? path.slice(1) : relative(root, resolve(root, dirname(name), path))
    const found = path === '' ? name : [file, `${file}.html`, join(file, 'index.html')].find(is)
    if (!found) wrong.push(`${name}: ${target} is not there`)
    else if (anchor && text.has(found) && !text.get(found).includes(` id="${anchor}"`)) {
      wrong.push(`${name}: ${target} has no heading`)
    }
  }
}

function is(file) {
  return /\.\w+$/.test(file) && existsSync(join(root, file))
}

if (pages.length < 20 || links < 500) wrong.push(`only ${pages.length} pages with ${links} links`)
for (const line of wrong) console.error(line)
console.log(`${pages.length} pages, ${links} links, ${wrong.length} wrong`)
process.exit(wrong.length ? 1 : 0)
