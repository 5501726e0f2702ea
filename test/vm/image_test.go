package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A run that is ended while it waits for another one's image leaves alone what is there of it.
func TestEndedWhileItWaits(t *testing.T) {
	cache := t.TempDir()
	key, err := recipeKey()
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(cache, "vm-"+key+".new", "root.img")
	if err := errors.Join(os.Mkdir(filepath.Dir(disk), 0o755), os.WriteFile(disk, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(cache, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	found := make(chan error)
	go func() {
		_, err := findImage(ctx, cache, t.Logf)
		found <- err
	}()
	end()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := <-found; !errors.Is(err, context.Canceled) {
		t.Errorf("it returned %v", err)
	}
	if _, err := os.Stat(disk); err != nil {
		t.Error(err)
	}
}
