package main

func (p *play) disabled()         {}
func (p *play) nfs()              {}
func (p *play) devices()          {}
func (p *play) bootWithoutAPool() {}
func (p *play) power()            {}
func (p *play) logWrites()        {}
