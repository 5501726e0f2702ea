// Package controller turns what is watched into what is done: for each claim, volume, record and
// pool it gathers facts, asks package plan for the verdict, acts in small idempotent steps and says
// once what happened.
//
// Each pool has its own queues and workers, so that one pool's trouble (hung, full, gone) never
// delays another's work.
//
// It will not decide: rules live in plan and hostcheck. It will not touch a disk or the API except
// through the interfaces in ports.go.
package controller
