package main

import (
	"os"
	"os/exec"
	"path/filepath"
)

// earlier is the package of 0.1.0 as far as it matters here: with a configuration that every
// upgrade compared with its own.
const earlier = `name: hostpath-provisioner
arch: amd64
version: 0.1.0
version_schema: none
release: "1"
maintainer: test
description: the configuration of 0.1.0
contents:
  - {src: config.toml, dst: /etc/hostpath-provisioner/config.toml, type: config|noreplace}
`

// pack makes a package of the nfpm.yaml in a directory, and passes it to the machine.
func (e *environment) pack(dir, kind string) {
	cmd := exec.CommandContext(e.ctx, built("nfpm"), "package", "--packager", kind, "--target", e.m.shared)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	e.Must(err, string(out))
}

// conffile goes from 0.1.0 to the package and to one whose example differs, as an unattended
// upgrade does. It fails when the package has the configuration: dpkg ends at its question. Without
// the ghost in nfpm.yaml rpm renames it when the earlier version goes.
func conffile(e *environment) {
	dir := filepath.Join(e.dir, "earlier")
	e.Must(os.Mkdir(dir, 0o755), "a directory")
	e.Must(os.WriteFile(filepath.Join(dir, "config.toml"), []byte("# 0.1.0\n[pool.fast]\n"), 0o644), "its configuration")
	e.Must(os.WriteFile(filepath.Join(dir, "nfpm.yaml"), []byte(earlier), 0o644), "its description")
	for _, kind := range []string{"deb", "rpm"} {
		e.pack(dir, kind)
	}
	const config, files = "/etc/hostpath-provisioner/config.toml", "ls -A /etc/hostpath-provisioner"
	e.dpkg("/shared/*0.1.0*.deb")
	e.sh("echo '# edited' >> " + config)
	e.dpkg(deb[1])
	e.dpkg(newer[1])
	e.is("tail -1 "+config+"; "+files, "# edited\nconf.d\nconfig.toml")
	// The machine's dpkg leaves documents out.
	example := "dpkg-deb --fsys-tarfile " + newer[1] + " | tar -xO ./usr/share/doc/" + service + "/config.toml"
	e.says(e.sh(example), "A later version says more.")
	e.sh("dpkg --purge hostpath-provisioner")
	e.dpkg(deb[1]) // whose own file is made once, and is removed with it
	e.says(e.sh("cat "+config), "no upgrade changes it")
	e.fails("hostpath-provisioner check --config-only", "no pool is configured")
	e.sh("rm " + config)
	e.dpkg(newer[1])
	e.is(files, "conf.d")
	e.sh("dpkg --purge hostpath-provisioner")
	e.fails(files, "No such file")

	const rpm, newRPM = "/shared/packages/*.x86_64.rpm", "/shared/packages-newer/*.x86_64.rpm"
	for _, edit := range []string{"echo '# edited' >> " + config, "true"} {
		e.sh("rpm -U --nodeps /shared/*0.1.0*.rpm; " + edit + "; md5sum " + config + " > /run/before")
		for _, next := range []string{rpm, newRPM} {
			e.sh("rpm -U --nodeps " + next)
			e.is("md5sum -c --quiet /run/before; "+files, "conf.d\nconfig.toml")
		}
		e.sh("rpm -e hostpath-provisioner")
		e.is(files, "config.toml.rpmsave")
		e.sh("rm -r /etc/hostpath-provisioner")
	}
}
