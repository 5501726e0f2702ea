// Names that other users chose, and thousands of them.
import assert from 'node:assert/strict'
import { admin, claim, configure, frame, inside, narrow, pool, row, section, step } from './world.mjs'

const MARKUP = '<img src=x onerror=alert(1)>'
const LEFTWARDS = '\u202edoc.exe \u05e9\u05dc\u05d5\u05dd'
const ADDRESS = '100% #a?b&c=%2e'
const LONG = 'a'.repeat(63) // a pool's name, at most
const LONGEST = `${'b'.repeat(120)}.${'c'.repeat(132)}` // a claim's, at most: 253 characters

await step('hostile names are text, and 253 characters fit', async () => {
  inside(`mkdir '/srv/fast/${MARKUP}' '/srv/fast/${LEFTWARDS}' '/srv/fast/${'d'.repeat(255)}' '/srv/fast/${ADDRESS}'`)
  configure('hostile', `[pool.${LONG}]\npath = "/srv/${MARKUP}${LEFTWARDS}"\nrequire_mount = false`)
  inside(`hostpath-provisioner prepare ${LONG}`)
  claim(LONGEST)
  await section('Volumes')
  await row(LONGEST).getByText('bound').waitFor({ timeout: 30000 })
  for (const name of [MARKUP, LEFTWARDS, 'd'.repeat(255), ADDRESS]) {
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
  await pool(LONG).getByText(`${MARKUP}`).first().waitFor({ state: 'attached' })
  await narrow('the overview')
  await admin.axe('a hostile pool')
  configure('hostile', '')
  inside(`rmdir /srv/fast/'<'* /srv/fast/ddd* '/srv/fast/${LEFTWARDS}' '/srv/fast/${ADDRESS}'`)
  await pool(LONG).waitFor({ state: 'detached' })
})

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
  await timed('nothing found', () => frame.getByLabel('Filter volumes').fill('undefined'), frame.getByText('No volume fits the filter.'))
  await frame.getByLabel('Filter volumes').fill('')
  figures.push(await scrolled())
  inside('cd /srv/fast; rmdir dir-*')
  return figures.join(', ')
})

// scrolled has the largest page of the table scroll through, and wants half of the frames in time:
// the machine has other work.
async function scrolled () {
  await frame.getByRole('button', { name: /of 50\d\d$/ }).first().click()
  await frame.getByRole('menuitem', { name: '500' }).click()
  await row('dir-0499').waitFor()
  const gaps = await frame.locator('html').evaluate(html => new Promise(resolve => {
    const gaps = []
    let last = performance.now()
    const turn = now => {
      gaps.push(now - last)
      last = now
      html.scrollTop += 200
      if (html.scrollTop + html.clientHeight < html.scrollHeight - 1) requestAnimationFrame(turn)
      else resolve(gaps.sort((a, b) => a - b))
    }
    requestAnimationFrame(turn)
  }))
  const [half, most] = [gaps[gaps.length >> 1], gaps.at(-1)]
  assert.ok(gaps.length > 50, `500 rows are scrolled through in ${gaps.length} frames`)
  assert.ok(half < 50, `half of the frames take ${half} ms, and the longest ${most} ms`)
  return `500 rows scrolled through in ${gaps.length} frames, half of them within ${half.toFixed(0)} ms, all within ${most.toFixed(0)} ms`
}
