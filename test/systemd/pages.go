package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// runElsewhere are the commands of the pages in accounted that no step runs, and who does.
var runElsewhere = map[string]string{
	"install.md, Build the packages": "make, before this begins",
	"install.md, From a repository":  "make test-repository",
	"install.md, The pod":            "make test-kubeadm: no kubelet is here",

	"install.md, A cluster on one machine": "make test-kubeadm",
	"install.md, One node, its own disk":   "TestSingleNodePage",
	"install.md, Where /usr is read-only":  "make test-sysext",
	"README.md, Two commands":              "users who try this project",
	"README.md, From a repository":         "make test-repository",

	"uninstall.md, A PersistentVolume that is left": "otherPages, on another volume",
}

// accounted are the pages whose commands are all run.
var accounted = []string{"install.md", "upgrade.md", "uninstall.md", "README.md", "csi.md", "snapshots.md"}

// docs runs the commands under a heading of a document, as they stand there but for the replaced
// parts.
func (e *environment) docs(page, heading string, replace ...string) string {
	return e.runBlocks(page, heading, nil, replace)
}

// block is docs for one block of commands under a heading, the first being 0.
func (e *environment) block(number int, page, heading string, replace ...string) string {
	return e.runBlocks(page, heading, []int{number}, replace)
}

func (e *environment) runBlocks(page, heading string, numbers []int, replace []string) (said string) {
	blocks, err := e.pages.Take(page, heading, "sh", numbers...)
	e.Must(err, "the documentation")
	for _, b := range blocks {
		script := b.Text
		for i := 0; i < len(replace); i += 2 {
			if !strings.Contains(script, replace[i]) {
				e.Fatalf("%s does not say %q", b, replace[i])
			}
			script = strings.ReplaceAll(script, replace[i], replace[i+1])
		}
		said += e.sh(script) + "\n"
	}
	return said
}

// text is the first block of a language under a heading.
func (e *environment) text(page, heading, language string) string {
	blocks, err := e.pages.Take(page, heading, language, 0)
	e.Must(err, "the documentation")
	return blocks[0].Text
}

// sample wants what was said to end as the sample of a page does, apart from numbers and widths.
func (e *environment) sample(said, page, heading string, number int) {
	e.Must(e.pages.Sample(said, page, heading, number), "the documentation")
}

// It fails when a page gets a command that no step runs.
func everyCommand(e *environment) { e.allRun(accounted, runElsewhere) }

// allRun wants every command of the pages to have been run, here or elsewhere.
func (e *environment) allRun(of []string, elsewhere map[string]string) {
	var left []string
	needed := map[string]bool{}
	for _, page := range of {
		blocks, err := e.pages.Left(page)
		e.Must(err, "the documentation")
		for _, b := range blocks {
			place := b.Page + ", " + b.Heading
			needed[place] = true
			if elsewhere[place] == "" {
				left = append(left, fmt.Sprintf("no step runs %s:\n%s", b, b.Text))
			}
		}
	}
	for place := range elsewhere {
		if !needed[place] {
			left = append(left, place+" has no command that is run elsewhere")
		}
	}
	if len(left) > 0 {
		e.Fatalf("%s", strings.Join(left, "\n"))
	}
}

// repositories is the story of a host that has its packages from a repository.
var repositories = []step{
	{"apt installs the newest package by the commands of the page, and fetches lists by their hash", aptInstall},
	{"the older version is still there, and apt goes back to it and on again", aptVersions},
	{"apt refuses a changed package and lists of another key, and takes the new key where both sign", aptRefuses},
	{"from a directory, without a web server", aptDirectory},
	{"dnf installs the newest package by the commands of the page; rpm finds its files as they should be", dnfInstall},
	{"the older version is still there, and dnf goes back to it and on again", dnfVersions},
	{"dnf removes it, and nothing of it is left", dnfRemoves},
	{"dnf refuses a package without a signature and lists of another key, and takes the new key where both sign", dnfRefuses},
}

// web is where the repositories are, as test-repository in the Makefile tells their script.
const web = "127.0.0.1:8088"

// published serves one state of what a publisher has, and notes what was asked for.
type published struct {
	dir string

	mutex sync.Mutex
	state string
	asked []string
}

func (p *published) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	p.asked = append(p.asked, r.URL.Path)
	dir := filepath.Join(p.dir, p.state)
	p.mutex.Unlock()
	http.FileServer(http.Dir(dir)).ServeHTTP(w, r)
}

// publish has the state served from now on.
func (e *environment) publish(state string) {
	e.published.mutex.Lock()
	defer e.published.mutex.Unlock()
	e.published.state, e.published.asked = state, nil
}

// wasAsked wants a path with this to have been asked for since publish.
func (e *environment) wasAsked(part string) {
	e.published.mutex.Lock()
	defer e.published.mutex.Unlock()
	for _, path := range e.published.asked {
		if strings.Contains(path, part) {
			return
		}
	}
	e.Fatalf("nobody asked for %s, but for %q", part, e.published.asked)
}

// prepareRepositories starts the web server and the machine; no cluster is needed.
func (e *environment) prepareRepositories() {
	e.prepareMachine(false)
	e.Must(e.passPackages("repositories/first"), "passing the repositories")
	e.serveRepositories()
	e.Must(e.m.boot(e.ctx), "booting")
	// Debian's archive cannot be reached from here.
	e.sh("rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; mkdir -p /etc/yum.repos.d")
	e.stub("systemd", "252", "")
}

// serveRepositories starts the web server, which serves nothing before publish.
func (e *environment) serveRepositories() {
	e.published = &published{dir: built("repositories")}
	listener, err := net.Listen("tcp", web)
	e.Must(err, "a web server")
	go http.Serve(listener, e.published) // ends with this process
}

// stub makes a package without files that says that a version of another one is there, which rpm's
// database does not know, and installs it with these words to rpm.
func (e *environment) stub(name, version, rpm string) {
	description := "name: " + name + "\narch: noarch\nversion: \"" + version +
		"\"\nmaintainer: test\ndescription: " + name + " is there\n"
	dir := filepath.Join(e.dir, name+"-"+version)
	e.Must(os.Mkdir(dir, 0o755), "a directory")
	e.Must(os.WriteFile(filepath.Join(dir, "nfpm.yaml"), []byte(description), 0o644), "a description")
	e.pack(dir, "rpm")
	e.sh("rpm " + rpm + " -U /shared/" + name + "-" + version + "*.rpm")
}

const fromRepository = "From a repository"

var atAddress = []string{"https://packages.example.org/hostpath-provisioner", "http://" + web}

func aptInstall(e *environment) {
	e.publish("second")
	said := e.block(0, "install.md", fromRepository, atAddress...)
	e.says(said, "installed and not started")
	e.says(e.sh("hostpath-provisioner version"), "+after.")
	e.wasAsked("/by-hash/SHA256/")
	e.sh("rm -rf /var/lib/apt/lists; apt-get update; apt-cache policy hostpath-provisioner")
}

const aptGet = "apt-get -y --allow-downgrades "

// older is the version of the first release, for apt and for dnf.
func (e *environment) older(packages, end string) string {
	return e.sh("ls /shared/repositories/first/" + packages + "/*" + end + " | sed 's,.*/hostpath-provisioner[_-],,; s," + end + ",,'")
}

// thereAndBack goes to the older version by a command, and on to the newer one.
func (e *environment) thereAndBack(back, on string) {
	e.sh(back)
	if said := e.sh("hostpath-provisioner version"); strings.Contains(said, "+after.") {
		e.Fatalf("after going back: %s", said)
	}
	e.sh(on)
	e.says(e.sh("hostpath-provisioner version"), "+after.")
}

func aptVersions(e *environment) {
	older := e.older("apt/pool", "_amd64.deb")
	e.thereAndBack(aptGet+"install hostpath-provisioner="+older, aptGet+"upgrade")
}

func aptRefuses(e *environment) {
	e.sh(aptGet + "purge hostpath-provisioner; apt-get clean")
	e.publish("changed")
	e.fails(aptGet+"install hostpath-provisioner", "Hash Sum mismatch")
	e.publish("rotated")
	const update = "apt-get -o APT::Update::Error-Mode=any update"
	e.fails(update, "NO_PUBKEY")
	e.publish("both")
	e.sh(update)
	e.docs("README.md", fromRepository, atAddress...)
	e.docs("dev/release.md", "Another key", atAddress...)
	e.publish("rotated")
	e.sh(update)
	e.docs("dev/release.md", "Another key", atAddress...) // without the old key
	e.publish("second")
	e.fails("rm -r /var/lib/apt/lists; "+update, "NO_PUBKEY")
	e.sh(aptGet + "purge hostpath-provisioner")
}

func aptDirectory(e *environment) {
	e.sh("cp /shared/repositories/first/hostpath-provisioner.sources /etc/apt/sources.list.d/")
	e.sh("sed -i 's,http://" + web + ",file:/shared/repositories/first,' /etc/apt/sources.list.d/*; rm -rf /var/lib/apt/lists")
	e.sh("apt-get update; " + aptGet + "install hostpath-provisioner; hostpath-provisioner version; " + aptGet + "purge hostpath-provisioner")
}

// It fails without gpgkey= in the page's file.
func dnfInstall(e *environment) {
	e.publish("second")
	e.says(e.block(1, "install.md", fromRepository, atAddress...), "installed and not started")
	e.says(e.sh("hostpath-provisioner version; rpm -V hostpath-provisioner; cat /etc/hostpath-provisioner/config.toml"), "+after.", "no upgrade changes it")
}

func dnfVersions(e *environment) {
	older := e.older("rpm/packages", ".x86_64.rpm")
	e.thereAndBack("dnf -y downgrade hostpath-provisioner-"+older,
		"dnf -y upgrade; rpm -V hostpath-provisioner")
}

// dnfRemoves: also what the scriptlets made. It fails when a directory is not named in nfpm.yaml.
func dnfRemoves(e *environment) {
	e.sh("rpm -ql hostpath-provisioner >/root/files; test -s /root/files")
	e.sh("dnf -y remove hostpath-provisioner")
	e.is("rpm -q hostpath-provisioner || true", "package hostpath-provisioner is not installed")
	e.is("xargs ls -d </root/files 2>/dev/null || true", "")
	e.is("ls -d /etc/systemd/system/*/hostpath* /run/hostpath* 2>/dev/null || true", "")
}

func dnfRefuses(e *environment) {
	const fresh = "dnf -y --setopt=metadata_expire=0 "
	e.sh("dnf clean all")
	e.publish("unsigned")
	e.fails(fresh+"install hostpath-provisioner", "not signed")
	const strict = "dnf --assumeno --setopt=metadata_expire=0 --setopt=*.skip_if_unavailable=0 makecache" // does not take the key that is offered
	e.publish("rotated")
	e.fails(strict, "GPG")
	e.publish("both")
	e.sh(strict + "; " + fresh + "install hostpath-provisioner")
	e.publish("rotated")
	e.sh(fresh + "makecache") // takes it
	e.sh("rpm -e hostpath-provisioner; " + fresh + "install hostpath-provisioner")
	e.says(e.sh("hostpath-provisioner version"), "+after.")
}
