package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrUntrusted is wrapped where a user other than root and this process's can write what
// root's commands believe. A configuration names a kubeconfig, and that a program, which they run.
var ErrUntrusted = errors.New("others can write it")

// trusted refuses a file or directory that others can write. In a directory with the sticky bit
// they replace no file.
func trusted(info fs.FileInfo) error {
	st, known := info.Sys().(*syscall.Stat_t)
	switch {
	case known && st.Uid != 0 && st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%w: it belongs to user %d", ErrUntrusted, st.Uid)
	case info.IsDir() && info.Mode()&fs.ModeSticky != 0:
		return nil
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("%w: its mode is %04o", ErrUntrusted, info.Mode().Perm())
	}
	return nil
}

// checkDirectories refuses directories in which others can put files beside the configuration, or
// in place of it: that of the path, and that of what it links to.
func (l *loader) checkDirectories() {
	dirs := []string{filepath.Dir(l.files[0]), filepath.Join(filepath.Dir(l.files[0]), dropInDir)}
	if real, err := filepath.EvalSymlinks(l.files[0]); err == nil {
		dirs = append(dirs, filepath.Dir(real))
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			continue // reading the files says so
		}
		if err := trusted(info); err != nil {
			l.errors = append(l.errors, Error{File: dir, Text: err.Error(), Untrusted: true})
		}
	}
}

// checkKubeconfig looks at who else can write the key to the cluster, or read it. That it is absent
// or unreadable is found out, and said, by the daemon that wants it.
func (l *loader) checkKubeconfig() {
	info, err := os.Stat(l.config.Kubeconfig)
	if err != nil {
		return
	}
	at, mode := l.whole("kubeconfig"), info.Mode().Perm()
	if mode&0o022 != 0 {
		l.refuse(at, "%v: %s has mode %04o", ErrUntrusted, l.config.Kubeconfig, mode)
		l.errors[len(l.errors)-1].Untrusted = true
	} else if mode&0o004 != 0 {
		l.warn(at, "every user of the host can read %s (mode %04o)", l.config.Kubeconfig, mode)
	}
}
