package main

// What the stage has for configurations that change.

func (st *stage) reconfigured(before state, node int) error {
	return st.machines[node].configure(before, func(d *setting) { d.archive = !d.archive })
}

func (st *stage) patternChanged(before state, node int) error {
	return st.machines[node].configure(before, func(d *setting) { d.pattern = !d.pattern })
}

func (st *stage) renamed(before state, node int) error {
	return st.machines[node].configure(before, func(d *setting) { d.names++ })
}

func (st *stage) aliasSet(before state, node int) error {
	on := st.machines[node]
	on.daemon.Kill()
	if err := on.configure(before, func(d *setting) { d.names = aliased }); err != nil {
		return err
	}
	return on.start()
}

// configure changes the configuration.
func (on *machine) configure(before state, change func(*setting)) error {
	d := before.daemons[on.number].setting
	change(&d)
	return on.daemon.Configure(on.config(on.daemon.Path(), d))
}
