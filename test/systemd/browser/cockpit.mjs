// Reads the page for Cockpit as people do: what it shows of a pool that is unmounted, of claims, of
// hostile names, of a daemon that is stopped; and its actions. It exits with 1 at the first thing
// that does not hold. CHAPTERS are some of them alone.
import { end } from './world.mjs'

for (const chapter of process.env.CHAPTERS?.split(',') ?? ['pools', 'volumes', 'hostile', 'actions', 'trouble', 'sessions', 'moved']) {
  await import(`./${chapter}.mjs`)
}
process.exit(await end())
