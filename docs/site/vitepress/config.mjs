// The site is the pages of README.md and docs as they are: make site. Search works offline, and
// each page has the version of which it is. Nothing is fetched from elsewhere.
import { defineConfig } from 'vitepress'

const version = process.env.VERSION
const page = (text, file) => ({ text, link: `/docs/${file}` })

// As a forge makes anchors of headings; docs_test.go knows the same rule.
export const slug = heading =>
  heading.toLowerCase().replace(/[^a-z0-9 _-]/g, '').trim().replaceAll(' ', '-')

export default defineConfig({
  title: 'hostpath-provisioner',
  description: 'Kubernetes volumes on a node\'s own disks, by a daemon of systemd',
  srcDir: 'pages',
  outDir: process.env.OUT,
  rewrites: { 'README.md': 'index.md' },
  lastUpdated: false,
  markdown: {
    anchor: { slugify: slug },
    config: md => md.core.ruler.push('front', state => state.tokens.forEach(front)),
  },
  themeConfig: {
    search: { provider: 'local' },
    nav: [{ text: version, link: '/CHANGELOG' }],
    outline: [2, 3],
    footer: { message: `hostpath-provisioner ${version}` },
    sidebar: [
      { text: 'Start', items: [
        { text: 'What it is', link: '/' },
        page('Install, and a first claim', 'install'),
      ] },
      { text: 'Use', items: [
        page('Which node a volume is on', 'nodes'),
        page('Classes', 'configuration#storageclass'),
        page('Sizes', 'configuration#what-is-promised'),
        page('Clones and snapshots', 'snapshots'),
        page('Shared pools', 'shared'),
        page('A directory on each node', 'every-node'),
        page('Source csi', 'csi'),
        page('Migration', 'migration'),
        page('From torchbox', 'from-torchbox'),
        page('From MaZderMind', 'from-mazdermind'),
        page('From kubevirt', 'from-kubevirt'),
        page('From kubevirt\'s CSI driver', 'from-kubevirt-csi'),
        page('From kubeboost', 'from-kubeboost'),
        page('From microk8s', 'from-microk8s'),
        page('From rancher and k3s', 'from-rancher'),
      ] },
      { text: 'Run', items: [
        page('Operation', 'operation'),
        page('Bad days', 'bad-days'),
        page('Backups', 'backups'),
        page('Alerts', 'operation#alerts'),
        page('Security', 'security'),
        page('SELinux', 'selinux'),
        page('Upgrade', 'upgrade'),
        page('Uninstall', 'uninstall'),
      ] },
      { text: 'Look up', items: [
        page('Configuration', 'configuration'),
        page('Commands', 'operation#commands'),
        page('Reasons', 'troubleshooting'),
        page('Metrics', 'operation#metrics-and-health'),
        page('Guarantees', 'guarantees'),
      ] },
      { text: 'Change', collapsed: true, items: [
        page('Development', 'dev/development'),
        page('Proofs', 'dev/proofs'),
        page('Decisions', 'dev/decisions'),
        page('States of a volume', 'dev/states'),
        page('Security in detail', 'dev/security'),
        page('Performance', 'dev/performance'),
        page('Feature by feature', 'dev/features'),
        page('Publishing packages', 'dev/release'),
      ] },
    ],
  },
})

// front has links to README.md lead to the site's first page, and keeps Vue from reading code.
function front(token) {
  for (const child of token.children ?? []) {
    if (child.type === 'code_inline') child.attrSet('v-pre', '')
    const href = child.type === 'link_open' && child.attrGet('href')
    if (href) child.attrSet('href', href.replace(/(^|\/)README\.md/, '$1index.md'))
  }
}
