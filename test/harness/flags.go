package harness

import (
	"flag"
	"fmt"
	"io"
)

// Flags is a program's set of flags. The usage text stands before the flags' own descriptions.
func Flags(name, usage string, out io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage); flags.PrintDefaults() }
	return flags
}

// Shorten sets the flags that the command line did not set: the short form of a program.
func Shorten(flags *flag.FlagSet, values map[string]string) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range values {
		if given[name] {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}
