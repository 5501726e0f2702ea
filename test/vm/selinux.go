package main

func (p *play) selinux() {
	p.need("the machine starts", func() (string, error) { return p.fresh(baseConfig) })
	p.need("SELinux is enforcing", func() (string, error) { return p.do("getenforce") })
	p.need("pools", p.pools)
	p.need("start", p.start)
	p.need("claim", func() (string, error) { _, dir, err := p.bound("fast"); return dir, err })
}
