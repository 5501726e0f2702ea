package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

const name = "hostpath-provisioner"

// Exit codes.
const (
	exitGood  = 0
	exitNot   = 1 // a pool, or whatever was asked about, is not as it should be
	exitUsage = 2 // the command line or the configuration
	// exitFull, of check and status: the storage of every pool is there, and at least one takes no
	// new volumes because it is full.
	exitFull = 3
	// exitConfig is the daemon's for a configuration that it cannot start with (EX_CONFIG,
	// sysexits.h): systemd does not try that again. It cannot be 2, which is how the Go runtime
	// ends after a panic and after the SIGABRT of systemd's watchdog; those have to be tried again.
	exitConfig = 78
)

// program is one call of the program with everything it takes from outside.
type program struct {
	stdout, stderr io.Writer
	now            func() time.Time

	config, kubeconfig, stateDir, runtimeDir string // flags

	// mark is what a line on stdout begins with that tells of something of this level.
	mark func(slog.Level) string

	called   string        // by which name the program was
	ran      string        // the command, with the program's name before it
	unhelped error         // why no help was shown
	host     string        // of the host's files that systemd writes; "" is /
	node     string        // as the configuration that was loaded says
	loaded   config.Config // by the command that runs, if it did
}

// errNot ends a command whose output said already what is not as it should be.
var errNot = errors.New("not as it should be")

// errFull is errNot for pools that are only full.
var errFull = fmt.Errorf("%w: a pool is full", errNot)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run is the program; it returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdout: stdout, stderr: stderr, now: time.Now, called: os.Args[0]}
	return p.run(args, stdin)
}

func (p *program) run(args []string, stdin io.Reader) int {
	stdout := p.stdout
	p.mark = func(level slog.Level) string { return systemd.LinePrefix(stdout, level) }
	out := terminalOf(p.stdout)
	p.stdout = out
	p.host = cmp.Or(p.host, "/")
	root := p.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends what the first could not
	ran, err := root.ExecuteContextC(ctx)
	p.ran, err = ran.CommandPath(), cmp.Or(err, p.unhelped)
	if errors.As(err, new(unknownCommandError)) {
		p.ran = root.CommandPath()
	}
	if err == nil { // a command that has printed half of what it had to print has not done its work
		err = out.failed
	}
	p.complain(err)
	return exitCode(err)
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitGood
	case errors.As(err, new(startError)):
		return exitConfig
	case errors.Is(err, errFull):
		return exitFull
	case errors.As(err, new(usageError)), errors.As(err, new(config.Errors)):
		return exitUsage
	default:
		return exitNot
	}
}

// complain says an error and, where there is one, what helps.
func (p *program) complain(err error) {
	if err == nil || errors.Is(err, errNot) || errors.As(err, new(loggedError)) {
		return
	}
	mark := systemd.LinePrefix(p.stderr, slog.LevelError)
	for _, line := range linesOf(err) {
		fmt.Fprintf(&terminal{to: p.stderr}, "%s%s: %s\n", mark, name, line)
	}
	hint := hintFor(err)
	switch {
	case p.ran == "":
	case errors.As(err, new(unknownCommandError)):
		hint = strings.ReplaceAll(hint, name, p.ran)
	case hint == rootHelp:
		hint = "run: " + p.ran + " --help"
	}
	if hint != "" {
		fmt.Fprintf(p.stderr, "%shint: %s\n", mark, hint)
	}
}

// linesOf is a line for each error: a configuration can have several.
func linesOf(err error) []string {
	all := config.Errors(nil)
	if !errors.As(err, &all) {
		return []string{err.Error()}
	}
	var lines []string
	for _, one := range all {
		lines = append(lines, one.Error())
	}
	return lines
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Kubernetes volumes on this host's storage",
		Long: "hostpath-provisioner turns PersistentVolumeClaims into directories on this host, in pools that\n" +
			"it proves to be mounted before it touches them. The daemon is the command run.",
		Version:       p.version(),
		Args:          knownCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error { // and not a daemon beside the service's
			return usageError{errors.New("no command is named")}
		},

		SuggestionsMinimumDistance: 2,
	}
	shown := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		// cobra checks no argument before --help
		if words := c.Flags().Args(); c == root && len(words) > 0 {
			p.unhelped = unknownCommand(root, words[0])
			return
		}
		shown(c, args)
	})
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVar(&p.config, "config", "/etc/hostpath-provisioner/config.toml", "the configuration `file`; conf.d/*.toml beside it are read too")
	flags.StringVar(&p.kubeconfig, "kubeconfig", "", "a kubeconfig `file` in place of the configured one")
	flags.StringVar(&p.stateDir, "state-dir", directory("STATE_DIRECTORY", state.Directory), "what the daemon keeps across restarts; default $STATE_DIRECTORY or this `directory`")
	flags.StringVar(&p.runtimeDir, "runtime-dir", directory("RUNTIME_DIRECTORY", "/run/hostpath-provisioner"), "where the daemon writes its status; default $RUNTIME_DIRECTORY or this `directory`")
	root.AddCommand(
		&cobra.Command{Use: "run", Short: "Run the daemon", Args: noArgs, RunE: p.daemon},
		p.checkCommand(), p.prepareCommand(), p.relabelCommand(), p.quotaCommand(),
		p.volumesCommand(), p.adoptCommand(), p.statusCommand(), p.manifestsCommand(),
		p.enrollCommand(), p.generatorCommand(), p.lookCommand(), p.mountpointCommand(),
		p.csiNodeCommand(), p.withdrawCommand(),
		p.backupCommand(), p.forgetCommand(), p.importCommand(), p.whyCommand(), p.explainCommand(),
		p.poolCommand(), p.volumeCommand(),
		&cobra.Command{Use: "version", Short: "Print the version", Args: noArgs, RunE: p.printVersion},
	)
	for _, c := range p.overviewCommands() {
		if c.Use != volumesName {
			root.AddCommand(c)
		}
	}
	root.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: "Print the help of a command", RunE: help})
	p.asPlugin(root)
	withExamples(root)
	return root
}

// help is cobra's own command, which prints the help of the program for a command that does not
// exist, and exits 0.
func help(c *cobra.Command, args []string) error {
	about, rest, err := c.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return unknownCommand(c.Root(), args[0])
	}
	about.InitDefaultHelpFlag()
	return about.Help()
}

// knownCommand: what follows the program's name is a command.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownCommand(root, args[0])
}

func unknownCommand(root *cobra.Command, word string) error {
	return usageError{unknownCommandError{word, root.SuggestionsFor(word)}}
}

// unknownCommandError says that there is no such command, and which are written much the same.
type unknownCommandError struct {
	word    string
	similar []string
}

func (e unknownCommandError) Error() string { return fmt.Sprintf("unknown command %q", e.word) }

// completePools has a shell complete the names of the configured pools.
func (p *program) completePools(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := config.Load(p.config)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return poolNames(c), cobra.ShellCompDirectiveNoFileComp
}

// directory is what systemd made for the service. It names several with colons between them
// (systemd.exec(5)); ours is one.
func directory(env, otherwise string) string {
	first, _, _ := strings.Cut(os.Getenv(env), ":")
	if first == "" {
		return otherwise
	}
	return first
}

// within limits a command in time.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
}

func noArgs(c *cobra.Command, args []string) error { return usage(cobra.NoArgs(c, args)) }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// args allows at least min and at most max arguments.
func args(min, max int) cobra.PositionalArgs {
	allowed := cobra.RangeArgs(min, max)
	if min == max {
		allowed = cobra.ExactArgs(max)
	}
	return func(c *cobra.Command, args []string) error { return usage(allowed(c, args)) }
}

func (p *program) printVersion(*cobra.Command, []string) error {
	_, err := fmt.Fprintln(p.stdout, name, p.version())
	return err
}

func (p *program) version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(version, info)
}

func (p *program) daemon(c *cobra.Command, _ []string) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	log := slog.New(words.Handler(systemd.NewHandler(p.stderr, slog.LevelInfo)))
	klog.SetSlogLogger(log) // what client-go says in the background goes where everything goes
	err := daemon.Run(c.Context(), daemon.Options{
		Config: p.config, Kubeconfig: cmp.Or(p.kubeconfig, systemd.Credential(systemd.CredentialKubeconfig)),
		StateDir: p.stateDir, RuntimeDir: p.runtimeDir, Version: p.version(),
		Log: log, Reload: reload, MetricsSocket: systemd.Passed(systemd.SocketMetrics), Responds: responds,
	})
	if errors.As(err, new(config.Errors)) {
		err = startError{err}
	}
	if err != nil && systemd.IsJournal(p.stderr) { // as a line of text it would have the priority of any other
		for _, line := range linesOf(err) {
			log.Error(line, "reason", plan.ReasonStartFailed, "version", p.version(), "hint", hintFor(err))
		}
		return loggedError{err}
	}
	return err
}

// loggedError was told in the journal already.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

// startError says that the daemon's configuration has errors.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }

// load reads the configuration and says what it warns of.
func (p *program) load() (config.Config, error) {
	c, err := config.Load(p.config, p.stateDir, p.runtimeDir)
	if err != nil {
		return c, err
	}
	c.Kubeconfig = cmp.Or(p.kubeconfig, p.credential(), c.Kubeconfig)
	p.node = c.Node
	for _, warning := range slices.Concat(c.Warnings, kube.KubeconfigRisks(c.Kubeconfig)) {
		p.warn(warning)
	}
	p.loaded = c
	return c, nil
}

// credentials is where systemd keeps what it gave to the daemon, as long as that runs, and where it
// took that from (systemd.exec(5), LoadCredential=).
var credentials = []string{
	"run/credentials/" + name + ".service/" + systemd.CredentialKubeconfig,
	"etc/credstore/" + name + ".kubeconfig", "run/credstore/" + name + ".kubeconfig",
}

// credential is the kubeconfig that the daemon has from systemd, "" if it has none: a command that
// is called by hand uses that of the daemon.
func (p *program) credential() string {
	if own := systemd.Credential(systemd.CredentialKubeconfig); own != "" {
		return own
	}
	for _, file := range credentials {
		file = filepath.Join(p.host, file)
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

func (p *program) warn(text string) {
	fmt.Fprintf(p.stderr, "%s%s: warning: %s\n", systemd.LinePrefix(p.stderr, slog.LevelWarn), name, text)
}

// tokenFile is where the daemon keeps the token that it renewed.
func (p *program) tokenFile() string { return filepath.Join(p.stateDir, daemon.TokenFile) }

// loadPool is load, with the pool that is named in the arguments.
func (p *program) loadPool(args []string) (config.Config, config.Pool, error) {
	cfg, pools, err := p.loadPools(args)
	if err == nil && len(pools) > 1 {
		err = usageError{fmt.Errorf("%s is several pools, and this is for one of them: %s",
			args[0], daemon.NamesOf(pools))}
	}
	if err != nil {
		return cfg, config.Pool{}, err
	}
	return cfg, pools[0], nil
}

// ofPools is a command about the configured pools, or those that its argument names.
func (p *program) ofPools(run func(context.Context, config.Config, []config.Pool) error) func(
	*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		cfg, pools, err := p.loadPools(args)
		if err != nil {
			return err
		}
		return run(c.Context(), cfg, pools)
	}
}

// loadPools is load, with the pools of the name in the arguments, or all of them without a name.
func (p *program) loadPools(args []string) (cfg config.Config, pools []config.Pool, err error) {
	if cfg, err = p.load(); err == nil {
		pools, err = choose(cfg, args)
	}
	return cfg, pools, err
}

// choose is the pools of a name, or all of them without one.
func choose(c config.Config, args []string) ([]config.Pool, error) {
	if len(args) == 0 {
		return c.Pools, nil
	}
	pools := c.Named(args[0])
	if len(pools) == 0 {
		return nil, usageError{noPoolError{args[0], c}}
	}
	return pools, nil
}

// noPoolError says that the command line names a pool that is not configured.
type noPoolError struct {
	name string
	c    config.Config
}

func (e noPoolError) Error() string { return fmt.Sprintf("pool %q is not configured", e.name) }
