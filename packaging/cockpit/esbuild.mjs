// Bundles src into OUT, with the texts of the licences of all that is in it. esbuild.mjs OUT
//
// The page is what Cockpit's Content-Security-Policy lets it be: no inline script, no eval, nothing
// from another host. It brings no fonts: those of the system are used.
import { build } from 'esbuild'
import { copyFileSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const out = process.argv[2]
const withoutFonts = {
  name: 'without-fonts',
  setup: ({ onLoad }) => onLoad({ filter: /styles\/base\.css$/ }, ({ path }) => ({
    loader: 'css',
    contents: readFileSync(path, 'utf8').replace(/@font-face\s*{[^}]*}/g, ''),
  })),
}
const { metafile } = await build({
  entryPoints: ['src/index.jsx'], outdir: out, entryNames: 'index', bundle: true, minify: true,
  metafile: true, legalComments: 'none', target: 'es2020', jsx: 'automatic', charset: 'ascii',
  define: { 'process.env.NODE_ENV': '"production"' }, external: ['*.svg'], plugins: [withoutFonts],
})
for (const name of ['index.html', 'manifest.json']) copyFileSync(`src/${name}`, join(out, name))

const modules = new Set(Object.keys(metafile.inputs)
  .map(path => /^node_modules\/(@[^/]*\/[^/]*|[^/]*)\//.exec(path)?.[1]).filter(Boolean))
let texts = 'cockpit-hostpath-provisioner contains the following, under the licences that follow each name.\n'
for (const name of [...modules].sort()) {
  const { version, license } = JSON.parse(readFileSync(`node_modules/${name}/package.json`))
  const files = readdirSync(`node_modules/${name}`).filter(file => /^(licen[cs]e|copying|notice)/i.test(file))
  if (!files.length) throw new Error(`no licence in ${name}`)
  for (const file of files) {
    const text = readFileSync(`node_modules/${name}/${file}`, 'utf8').trim()
    texts += `\n${'='.repeat(80)}\n${name} ${version} (${license}): ${file}\n\n${text}\n`
  }
}
writeFileSync(join(out, 'licenses.txt'), texts)
