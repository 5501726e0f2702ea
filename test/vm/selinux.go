package main

import (
	"errors"
	"fmt"
	"strings"
)

const script = "/usr/libexec/hostpath-provisioner/selinux-module"

// selinux: enforcing, with and without the policy module.
func (p *play) selinux() {
	p.installedUnderSELinux()
	p.startedInDomains()
	for _, pool := range []string{"fast", "big"} {
		p.volume(pool)
	}
	p.confinement()
	p.labels()
	p.gateWhileConfined()
	p.driverBefore()
	p.page()
	p.driver()
	p.inlineConfined()
	p.pausedConfined()
	p.step("permissive: check says so, and volumes are born the same", p.permissive)
	p.step("in all of this nothing that the daemon needs was refused", p.noDenials)
	p.step("without the module a service is not confined, check says so, and it goes on", p.removeModule)
	p.step("the package is purged: its own files go, volumes stay", func() (string, error) {
		return p.expect("dpkg --purge hostpath-provisioner 2>&1; ls -d /etc/hostpath-provisioner /var/lib/hostpath-provisioner; ls -d /srv/fast/pvc-* | wc -l",
			"cannot access '/etc/hostpath-provisioner'", "cannot access '/var/lib/hostpath-provisioner'", "!\n0\n")
	})
}

// installedUnderSELinux: what the package's scripts and the generator do before the daemon is
// started.
func (p *play) installedUnderSELinux() {
	p.need("a machine with SELinux enforcing", func() (string, error) {
		must(p.fresh(baseConfig))
		// The kernel leaves refusals out when there are more than ten in five seconds.
		return p.expect("echo 0 > /proc/sys/kernel/printk_ratelimit; getenforce", "Enforcing")
	})
	p.need("the package's scripts have compiled and loaded the policy module", func() (string, error) {
		return p.expect("semodule -l | grep hostpath", "hostpath_provisioner_pools", "hostpath_provisioner\n")
	})
	p.step("its script entered no directory that may be a pool", func() (string, error) {
		defer p.do("rm -r " + tenants)
		return p.expect("ls -Zd "+tenants+" "+tenants+"/file", ":container_file_t:s0 "+tenants+"/file", "!var_lib_t")
	})
	p.step("the generator writes drop-ins in a domain of its own", func() (string, error) {
		return p.expect("systemctl daemon-reload; systemctl cat hostpath-provisioner; ls -Z /usr/lib/systemd/system-generators/hostpath-provisioner-generator",
			"# /run/systemd/generator/hostpath-provisioner.service.d/50-pools.conf", "After=srv-fast.mount", ":hostpath_provisioner_generator_exec_t:")
	})
	p.step("a type that the policy has not closes the pool, and check says so", p.unknownType)
}

// startedInDomains prepares the pools, and looks at the domains of the processes.
func (p *play) startedInDomains() {
	p.need("pools on ext4 and xfs are prepared, and get the module's type", func() (string, error) {
		must(p.pools())
		return p.expect("ls -dZ /srv/fast /srv/big/.hostpath-provisioner/pool.json; hostpath-provisioner check",
			"system_u:object_r:hostpath_provisioner_pool_t:s0 /srv/fast\n", "hostpath_provisioner_pool_t:s0 /srv/big/.hostpath", "SELinux is enforcing", "!warning")
	})
	p.need("the daemon starts in its own domain", func() (string, error) {
		must(p.start())
		return p.expect("ps -o label= -p $(systemctl show -P MainPID hostpath-provisioner)", ":hostpath_provisioner_t:s0")
	})
	p.need("what looks under mount points for it runs in another", func() (string, error) {
		return p.expect("ps -o label= -p $(systemctl show -P MainPID hostpath-provisioner-mountpoint); ls -Z /run/hostpath-provisioner-mountpoint.socket",
			":hostpath_provisioner_mountpoint_t:s0", ":hostpath_provisioner_mountpoint_runtime_t:s0 /run")
	})
	p.step("and is reloaded in it", func() (string, error) {
		must(p.do("systemctl reload hostpath-provisioner"))
		return p.machine.until(p.ctx, limit, "journalctl -u hostpath-provisioner -o cat --no-pager | grep 'configuration reloaded'")
	})
}

// permissive runs check, and makes a volume, while nothing is enforced.
func (p *play) permissive() (string, error) {
	must(p.do("setenforce 0"))
	defer p.do("setenforce 1")
	must(p.expect("hostpath-provisioner check", "SELinux is permissive"))
	_, dir := must2(p.bound("fast"))
	return p.expect("stat -c %C "+dir, "system_u:object_r:container_file_t:s0\n")
}

// expect runs a command, whatever its exit code, and looks for each text in its output; with "!"
// before it, for its absence. It returns the line of the first text.
func (p *play) expect(command string, texts ...string) (string, error) {
	out, code := must2(p.machine.ask(p.ctx, command))
	var errs []error
	for _, text := range texts {
		unwanted, absent := strings.CutPrefix(text, "!")
		if absent && strings.Contains(out, unwanted) {
			errs = append(errs, fmt.Errorf("%q is there", unwanted))
		}
		if !absent && !strings.Contains(out, text) {
			errs = append(errs, fmt.Errorf("no %q", text))
		}
	}
	if len(errs) > 0 {
		return "", fmt.Errorf("%w in the output of: %s (exit code %d)\n%s", errors.Join(errs...), command, code, out)
	}
	for line := range strings.Lines(out) {
		if len(texts) > 0 && strings.Contains(line, strings.TrimSpace(texts[0])) {
			return strings.TrimSpace(line), nil
		}
	}
	return "", nil
}

func (p *play) unknownType() (string, error) {
	const config = `printf 'node = "machine"\n[pool.odd]\npath = "/srv/odd"\nselinux_type = "nonesuch_t"\n'`
	must(p.doAll("mkfs.ext4 -q /dev/vdc && mkdir -p /srv/odd && mount /dev/vdc /srv/odd && " + config + " > /root/odd.toml"))
	defer p.do("umount /srv/odd; rmdir /srv/odd; rm -r /root/odd.toml /root/odd")
	return p.expect("hostpath-provisioner check --config /root/odd.toml --state-dir /root/odd", "UnknownType: the SELinux policy of this host has no type nonesuch_t", "hint: install what has the type", "closed:")
}

// volume is what a volume is to the tenants' containers.
func (p *play) volume(pool string) {
	var claim, dir string
	p.step("on "+pool+" a volume is born with its label (the domain may not relabel)", func() (_ string, err error) {
		claim, dir = must2(p.bound(pool))
		return p.expect("stat -c %C "+dir, "system_u:object_r:container_file_t:s0\n")
	})
	if dir == "" {
		return
	}
	// As a container runtime does: bound to where the container sees it. What it prints would be
	// refused, so it copies a file to show that it can read.
	inside := "mkdir -p /mnt/volume /mnt/image && cp /usr/local/share/busybox /mnt/image/ && chcon -R -t container_file_t /mnt/image && mount --bind %s /mnt/volume && " +
		"runcon -u system_u -r system_r -t container_t -l s0:c1,c2 /mnt/image/busybox sh -c 'cd /mnt/volume && echo data > file && mkdir -p a/b && cat file > a/b/copy'; echo code $?; ls -Z /mnt/volume; cat /mnt/volume/a/b/copy; umount /mnt/volume"
	p.step("a confined container writes to the volume on "+pool+" and reads it again", func() (string, error) {
		return p.expect(fmt.Sprintf(inside, dir), "container_file_t:s0", "code 0\n", "data\n")
	})
	p.step("and is refused a directory on "+pool+" with another label", func() (string, error) {
		other := strings.TrimSuffix(dir, "/") + "-other"
		must(p.do("mkdir " + other + " && chcon -t var_log_t " + other + " && chmod 0777 " + other))
		defer p.do("rm -r " + other)
		return p.expect(fmt.Sprintf(inside, other), "!code 0\n", "!data\n")
	})
	p.step("a volume with a container's files on "+pool+" is removed by the confined daemon", func() (string, error) {
		check(p.drop(claim))
		return p.machine.until(p.ctx, limit, "test ! -e "+dir+" && test -z \"$(ls -A /srv/"+pool+"/.hostpath-provisioner/trash)\"")
	})
}

// inDomain runs a command as a service in the daemon's domain and returns what it printed. Its
// output goes through the journal: descriptors of an administrator's shell would be refused.
func (p *play) inDomain(command string) string {
	p.services++
	return fmt.Sprintf("systemd-run -q --wait --unit=try-%d -p SELinuxContext=system_u:system_r:hostpath_provisioner_t:s0 %s; "+
		"journalctl --sync; journalctl -u try-%d -o cat --no-pager", p.services, command, p.services)
}

// confinement: the same program in the daemon's domain and in an administrator's reads a file, of
// which only the error shows that it could not.
func (p *play) confinement() {
	const try = "hostpath-provisioner check --config-only --config "
	p.do("install -D -m 0644 /etc/passwd /var/lib/postgresql/data; install -D -m 0600 /etc/passwd /var/lib/dbus/theirs; cp /etc/passwd /root/notes; restorecon -R /var/lib/postgresql /var/lib/dbus /root/notes")
	p.step("the daemon's domain may read its own configuration", func() (string, error) {
		return p.expect(p.inDomain("/usr/bin/"+try+"/etc/hostpath-provisioner/config.toml"), "config.toml: configuration is valid")
	})
	for _, file := range []string{"/etc/shadow", "/home/alice/secret", "/root/notes", "/var/lib/postgresql/data", "/var/lib/dbus/theirs"} {
		p.step("the daemon's domain may not read "+file, func() (string, error) {
			if _, err := p.expect(try+file, file+":", "!permission denied"); err != nil {
				return "", fmt.Errorf("an administrator's domain may: %w", err)
			}
			return p.expect(p.inDomain("/usr/bin/"+try+file), file+": permission denied")
		})
	}
	p.step("and its refusals are in the audit log", func() (string, error) {
		return p.expect("journalctl -k --no-pager -o cat -g 'avc: .*scontext=system_u:system_r:hostpath_provisioner_t.*shadow_t'", "denied")
	})
	p.step("the daemon's domain may not start other programs", func() (string, error) {
		return p.expect(p.inDomain("/usr/bin/id"), "Permission denied", "!uid=")
	})
}

// labels that do not fit are reported, mended, and agreed upon.
func (p *play) labels() {
	var name, dir string
	p.step("labels that do not fit: check warns", func() (_ string, err error) {
		_, dir = must2(p.bound("fast"))
		name = dir[strings.LastIndexByte(dir, '/')+1:]
		must(p.do("mkdir " + dir + "/sub && ln -s /etc/shadow " + dir + "/sub/link && echo > " + dir + "/file && chcon -hR -t var_log_t " + dir))
		return p.expect("hostpath-provisioner check", "warning WrongLabel: volumes without the label system_u:object_r:container_file_t:s0: 1 of 1; ", "hint: run: hostpath-provisioner relabel fast")
	})
	p.step("relabel --dry-run says what it would do, and does nothing", func() (string, error) {
		must(p.expect("stat -c %C "+dir+"/file", ":var_log_t:"))
		return p.expect("hostpath-provisioner relabel "+name+" --dry-run; stat -c %C "+dir+"/file", "4 of 4 entries would be relabelled", ":var_log_t:")
	})
	p.step("relabel mends them", func() (string, error) {
		out := must(p.expect("hostpath-provisioner relabel "+name, "4 of 4 entries relabelled"))
		_, err := p.expect("hostpath-provisioner check; stat -c %C "+dir+" "+dir+"/file "+dir+"/sub/link /etc/shadow", "!WrongLabel", "!var_log_t", ":shadow_t:")
		return out, err
	})
	p.step("restorecon agrees with every label in the pools", func() (string, error) {
		return p.expect("restorecon -R -n -v /srv/fast /srv/big; echo done; ls -RZ /srv | wc -l", "done\n", "!Would relabel")
	})
	p.step("and would mend a wrong one itself", func() (string, error) {
		return p.expect("chcon -t var_log_t "+dir+"/file && restorecon -R -v /srv/fast", "container_file_t:s0")
	})
}

func (p *play) gateWhileConfined() {
	p.step("unmounted on the host: the confined daemon sees it, and refuses", func() (string, error) {
		must(p.do("umount /srv/big"))
		claim := must(p.claim("big"))
		said := must(p.refused(claim, "PoolClosed"))
		must(p.do("test -z \"$(ls -A /srv/big)\" && mount /srv/big"))
		_, err := p.waitBound(claim)
		return said, err
	})
}

// noDenials looks for refusals that the steps did not ask for.
func (p *play) noDenials() (string, error) {
	out, _ := must2(p.machine.ask(p.ctx, "journalctl -k --no-pager -o cat -g 'avc: .*denied.*hostpath_provisioner'"))
	var unexpected []string
	for line := range strings.Lines(out) {
		asked := false
		for _, of := range []string{"shadow_t", "user_home", "admin_home", "postgresql", "theirs", "notes", "/id", "home_root_t", "system_dbusd", "semanage_t", `comm="(id)"`, "permissive=1", `comm="id"`, "/usr/bin/id", `comm="attempt"`, "scontext=system_u:system_r:container_t:"} {
			asked = asked || strings.Contains(line, of)
		}
		if !asked && strings.Contains(line, "denied") {
			unexpected = append(unexpected, strings.TrimSpace(line))
		}
	}
	if len(unexpected) > 0 {
		return "", fmt.Errorf("%d refusals:\n%s", len(unexpected), strings.Join(unexpected, "\n"))
	}
	return "", nil
}

func (p *play) removeModule() (string, error) {
	must(p.policy(script + " remove"))
	must(p.expect("semodule -l | grep -c hostpath_provisioner; systemctl daemon-reload; systemctl cat hostpath-provisioner",
		"0\n", "# /run/systemd/generator/hostpath-provisioner.service.d/50-pools.conf", "After=srv-fast.mount"))
	must(p.expect("hostpath-provisioner check", "host: warning Unconfined: SELinux is enforcing"))
	must(p.do("chcon -R -t var_lib_t /srv/fast/.hostpath-provisioner && chcon -t var_lib_t /srv/fast && systemctl restart hostpath-provisioner"))
	_, dir := must2(p.bound("fast"))
	return p.expect("stat -c %C "+dir, "system_u:object_r:container_file_t:s0\n")
}
