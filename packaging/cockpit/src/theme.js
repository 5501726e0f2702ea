// Follows the style that people chose in Cockpit's shell, or else their browser's.
const dark = window.matchMedia('(prefers-color-scheme: dark)')

function apply (style) {
  style ||= localStorage.getItem('shell:style') || 'auto'
  const is = style === 'dark' || (style === 'auto' && dark.matches)
  document.documentElement.classList.toggle('pf-v6-theme-dark', is)
}

export function followTheme () {
  apply()
  dark.addEventListener('change', () => apply())
  window.addEventListener('storage', event => { if (event.key === 'shell:style') apply() })
  window.addEventListener('cockpit-style', event => apply(event.detail?.style))
}
