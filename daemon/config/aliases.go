package config

import (
	"fmt"
	"slices"
)

// setAliases takes an array of provisioner names. An empty one is none.
func setAliases(c *Config, v any) (err error) {
	c.Aliases, err = provisioners(v, CheckProvisioner)
	return err
}

// provisioners are the names in an array, each once.
func provisioners(v any, check func(string) error) (all []string, err error) {
	all, err = texts(v)
	for i, name := range all {
		switch {
		case err != nil:
		case check(name) != nil:
			err = check(name)
		case slices.Contains(all[:i], name):
			err = fmt.Errorf("%q is listed twice", name)
		}
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// texts are the strings of an array.
func texts(v any) (all []string, err error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("want an array of strings, got %s", typeName(v))
	}
	for _, one := range list {
		s, ok := one.(string)
		if !ok {
			return nil, fmt.Errorf("want an array of strings, got one with %s", typeName(one))
		}
		all = append(all, s)
	}
	return all, nil
}

// checkAliases refuses an alias that is the provisioner's own name: one of the two is a mistake.
func (l *loader) checkAliases() {
	if slices.Contains(l.config.Aliases, l.config.Provisioner) {
		l.refuse(l.whole("aliases"), "%q is the provisioner's own name", l.config.Provisioner)
	}
}
