package controllers

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A class that the watch does not have is requested from the API server, because the claim's
// message tells whose it is; and every user who may create claims can name any number of such
// classes. So one name is requested once in askClassAgain, and at most askClassMost names: the
// other claims are told that the class does not exist here.
const (
	askClassAgain = time.Minute
	askClassMost  = 30
)

// classOwners are the provisioners of classes that were asked for lately, "" of those that do not
// exist.
type classOwners struct {
	mu    sync.Mutex
	known map[string]classOwner
}

type classOwner struct {
	provisioner string
	asked       time.Time
	learned     bool
}

// errClassRequested: a request for the same class is in flight. The claim is looked at again soon.
var errClassRequested = errors.New("a request for the class is in flight")

// classOf is the provisioner of a class, "" if it does not exist or too many were asked for.
func (c *cluster) classOf(ctx context.Context, name string) (string, error) {
	owner, ask := c.classes.take(name, time.Now())
	switch {
	case !ask && !owner.learned:
		return "", errClassRequested
	case !ask:
		return owner.provisioner, nil
	}
	provisioner, err := c.API.ClassProvisioner(ctx, name)
	c.classes.learn(name, provisioner, err)
	return provisioner, err
}

// take returns what is known of a class. Where that is nothing and there is room, ask is true, and
// the caller asks.
func (o *classOwners) take(name string, now time.Time) (owner classOwner, ask bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for other, owner := range o.known {
		if owner.learned && now.Sub(owner.asked) > askClassAgain {
			delete(o.known, other)
		}
	}
	if owner, known := o.known[name]; known {
		return owner, false
	}
	if len(o.known) >= askClassMost {
		return classOwner{learned: true}, false
	}
	if o.known == nil {
		o.known = map[string]classOwner{}
	}
	o.known[name] = classOwner{asked: now}
	return classOwner{}, true
}

// learn keeps what the API server returned, and nothing of a request that failed.
func (o *classOwners) learn(name, provisioner string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		delete(o.known, name)
		return
	}
	o.known[name] = classOwner{provisioner: provisioner, asked: o.known[name].asked, learned: true}
}
