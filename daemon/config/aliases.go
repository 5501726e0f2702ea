package config

import (
	"fmt"
	"slices"
)

// setAliases takes an array of provisioner names. An empty one is none.
func setAliases(c *Config, v any) error {
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("want an array of strings, got %s", typeName(v))
	}
	c.Aliases = nil
	for _, one := range list {
		name, ok := one.(string)
		if !ok {
			return fmt.Errorf("want an array of strings, got one with %s", typeName(one))
		}
		if err := CheckProvisioner(name); err != nil {
			return err
		}
		if slices.Contains(c.Aliases, name) {
			return fmt.Errorf("%q is listed twice", name)
		}
		c.Aliases = append(c.Aliases, name)
	}
	return nil
}

// checkAliases refuses an alias that is the provisioner's own name: one of the two is a mistake.
func (l *loader) checkAliases() {
	if slices.Contains(l.config.Aliases, l.config.Provisioner) {
		l.refuse(l.whole("aliases"), "%q is the provisioner's own name", l.config.Provisioner)
	}
}
