package config

import (
	"os"
	"path/filepath"
	"testing"
)

// Who can write the configuration has root's commands run a program: the kubeconfig that it names
// says which.
func TestOthersWrite(t *testing.T) {
	const dropIn, others = "conf.d/site.toml", ": others can write it: "
	const line = "config.toml:1: kubeconfig"
	chmod := func(name string, mode os.FileMode) func(string) error {
		return func(dir string) error { return os.Chmod(filepath.Join(dir, name), mode) }
	}
	chown := func(name string) func(string) error {
		return func(dir string) error { return os.Chown(filepath.Join(dir, name), 65534, 0) }
	}
	for what, c := range map[string]struct {
		do   func(dir string) error
		want string // "" for none
	}{
		"as it should be":       {chmod("config.toml", 0o644), ""},
		"file of all":           {chmod("config.toml", 0o666), "config.toml" + others + "its mode is 0666"},
		"file of a group":       {chmod("config.toml", 0o620), "config.toml" + others + "its mode is 0620"},
		"another's file":        {chown("config.toml"), "config.toml" + others + "it belongs to user 65534"},
		"drop-in of all":        {chmod(dropIn, 0o646), dropIn + others + "its mode is 0646"},
		"another's drop-in":     {chown(dropIn), dropIn + others + "it belongs to user 65534"},
		"drop-ins of all":       {chmod("conf.d", 0o777), "conf.d" + others + "its mode is 0777"},
		"another's drop-ins":    {chown("conf.d"), "conf.d" + others + "it belongs to user 65534"},
		"directory of a group":  {chmod(".", 0o775), others + "its mode is 0775"},
		"another's directory":   {chown("."), others + "it belongs to user 65534"},
		"sticky, such as /tmp":  {chmod(".", 0o777|os.ModeSticky), ""},
		"kubeconfig of all":     {chmod("kubeconfig", 0o606), line + others + "kubeconfig has mode 0606"},
		"kubeconfig of a group": {chmod("kubeconfig", 0o620), line + others + "kubeconfig has mode 0620"},
		"link to another's":     {linked, "elsewhere" + others + "its mode is 0777"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "config.toml")
		kubeconfig := filepath.Join(dir, "kubeconfig")
		must(t, os.Mkdir(filepath.Join(dir, "conf.d"), 0o755))
		must(t, os.WriteFile(file, []byte("kubeconfig = '"+kubeconfig+"'\n"+minimal), 0o600))
		more := []byte("[pool.p]\ndefault = true\n")
		must(t, os.WriteFile(filepath.Join(dir, dropIn), more, 0o600))
		must(t, os.WriteFile(kubeconfig, nil, 0o600))
		must(t, os.Chmod(dir, 0o755))
		must(t, c.do(dir))
		_, err := Load(file)
		got := ""
		if err != nil {
			got = said(file, err.Error())
			if got[0] == '/' {
				got = got[len(dir):]
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// linked has the file be a link into a directory that others can write.
func linked(dir string) error {
	file, other := filepath.Join(dir, "config.toml"), filepath.Join(dir, "elsewhere")
	for _, err := range []error{
		os.Mkdir(other, 0o755), os.Chmod(other, 0o777),
		os.Rename(file, filepath.Join(other, "config.toml")),
		os.Symlink("elsewhere/config.toml", file),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
