package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// The sockets are named relative to the working directory, which is the state
// directory: a socket's path may have at most 107 bytes, and a test's
// temporary directory is often longer.
const (
	etcdClientSocket = "unix://etcd.sock"
	etcdPeerSocket   = "unix://etcd-peer.sock"
)

const etcdStartTimeout = 30 * time.Second

// startEtcd runs a single-member etcd inside this process and returns when it
// takes requests.
//
// It does not fsync. A killed process loses nothing by that, since what it
// wrote is in the kernel's cache; a machine that loses power does, and a
// throwaway cluster may.
func startEtcd(ctx context.Context, dataDir string) (*embed.Etcd, error) {
	config, err := etcdConfig(dataDir)
	if err != nil {
		return nil, err
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", dataDir, err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(etcdStartTimeout):
		err = errors.New("not ready in time")
	}
	etcd.Close()
	return nil, fmt.Errorf("start etcd in %s: %w", dataDir, err)
}

func etcdConfig(dataDir string) (*embed.Config, error) {
	client, err := url.Parse(etcdClientSocket)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(etcdPeerSocket)
	if err != nil {
		return nil, err
	}
	// Advertised addresses must look like http://host:port, whatever etcd
	// listens on. Nothing dials this one: there are no other members, and the
	// only client is given the socket.
	advertised := url.URL{Scheme: "http", Host: "127.0.0.1:2380"}

	config := embed.NewConfig()
	config.Dir = dataDir
	config.ListenClientUrls = []url.URL{*client}
	config.ListenPeerUrls = []url.URL{*peer}
	config.AdvertiseClientUrls = []url.URL{advertised}
	config.AdvertisePeerUrls = []url.URL{advertised}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.EnableGRPCGateway = false
	config.LogLevel = "warn"
	// Its flag has a default and this field, in nanoseconds, has not: at zero,
	// every request is logged as a slow one. etcd 3.5 has no such field.
	return config, json.Unmarshal([]byte(`{"warning-unary-request-duration": 300000000}`), config)
}

// stopEtcd closes the database. It drops the clients' connections first,
// because etcd's own Close waits for their streams, and the API server's
// watches do not end by themselves if it was left behind.
func stopEtcd(etcd *embed.Etcd) {
	etcd.Server.HardStop()
	etcd.Close()
}
