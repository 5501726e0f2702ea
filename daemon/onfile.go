package daemon

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// difference is why the configuration on disk is not the one in force; nil: it is.
type difference struct {
	why     string // why...
	message string // in words, for a line
	refused bool   // by a reload, which looks at more than the files
}

// Values of difference.why.
const (
	whyErrors  = "errors"  // the files have errors: the next start fails
	whyRestart = "restart" // the daemon has to be restarted for the change
	whyDiffers = "differs" // they are good, and were not loaded
)

// sentence is what the status begins with.
func (f *difference) sentence() string {
	switch {
	case f == nil:
		return ""
	case f.why == whyRestart:
		return "the configuration file was changed and an older one is in force: for this change it has to be restarted; "
	case f.why == whyDiffers:
		return "the configuration file was changed and an older one is in force: it was not reloaded; "
	default:
		return "the configuration file has errors and an older one is in force; "
	}
}

// differenceOf is that of a configuration that was refused.
func differenceOf(err error) *difference {
	f := &difference{why: whyErrors, message: words.Line(err.Error(), words.MessageMax)}
	if errors.As(err, new(*RestartError)) || errors.Is(err, ErrNotCapable) {
		f.why = whyRestart
	}
	return f
}

// followFiles looks at the files that the daemon was started with. It is not tell that does: what
// the files are on may not respond, and then people are to be told so.
func (d *daemon) followFiles(ctx context.Context) {
	every := time.NewTicker(5 * time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		d.replaced()
		if g := d.now.Load(); g != nil {
			d.compareFiles(g)
		}
	}
}

// settled is how long the files have to be unchanged before they are compared: they may be being
// written.
const settled = 5 * time.Second

// compareFiles finds out whether the configuration on disk is the one in force, when the files have
// changed. systemctl reload checks them before it sends the signal: of what it refuses this process
// would hear nothing, until a boot ends with it. It is called by one goroutine.
func (d *daemon) compareFiles(g *generation) {
	now, changed := config.Stamp(d.Config)
	if age := time.Since(changed); now == g.stamp || age >= 0 && age < settled {
		return
	}
	g.stamp = now
	was, is := g.differs.Load(), d.difference(g)
	if is != nil && is.why == whyDiffers && was != nil && was.refused {
		return // what the reload said is more
	}
	g.differs.Store(is)
	signal(d.changed)
	if is != nil && (was == nil || was.message != is.message) {
		d.Log.Warn("the configuration on disk is not the one in force: "+is.message,
			"reason", plan.ReasonNotInForce, "file", d.Config)
	}
}

func (d *daemon) difference(g *generation) *difference {
	onDisk, err := config.Load(d.Config, d.StateDir, d.RuntimeDir)
	if err == nil {
		if d.Kubeconfig != "" {
			onDisk.Kubeconfig = d.Kubeconfig
		}
		err = Fits(d.Options, d.confined, onDisk)
	}
	if err == nil {
		err = capable(onDisk)
	}
	if err != nil {
		return differenceOf(err)
	}
	inForce := g.cfg
	inForce.Warnings, onDisk.Warnings = nil, nil // they name lines
	if reflect.DeepEqual(inForce, onDisk) {
		return nil
	}
	return &difference{why: whyDiffers, message: "it was changed and not reloaded"}
}
